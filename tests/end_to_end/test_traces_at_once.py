"""Clients that trace at the same moment do not meet in what libraries keep in their modules."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLIENTS = 3
FUNCTIONS = 8

LIBRARY = """
    import os

    OPEN = []

    def open_at_once():
        "How many traces have it open: others may run at each look."
        OPEN.append(None)
        most = 0
        for _ in range(20_000):
            os.sched_yield()
            most = max(most, len(OPEN))
        OPEN.pop()
        return most
"""
"""A module of an installed package."""

PROGRAM = f"""
    import sys
    import jitclient, stateful_library

    def function(n):
        return lambda x: x * stateful_library.open_at_once() + n

    found = [float(jitclient.jit(function(n + {FUNCTIONS} * int(sys.argv[1])))(1.0)) for n in range({FUNCTIONS})]
    print([value - n for n, value in enumerate(found)])
"""


@pytest.mark.slow
def test_one_trace_at_a_time(new_daemon: Callable[..., Any], counts: Callable[..., Any], tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "stateful_library.py").write_text(textwrap.dedent(LIBRARY))
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    address = f"unix:{tmp_path}/s"
    environment = {"PYTHONPATH": str(installed)}
    with new_daemon(address, env=environment):
        clients = [
            subprocess.Popen(
                [sys.executable, str(program), str(client)],
                env={**os.environ, **environment, "JITSERVER_ADDRESS": address},
                stdout=subprocess.PIPE,
                text=True,
            )
            for client in range(CLIENTS)
        ]
        said = [client.communicate(timeout=120)[0] for client in clients]
        assert [client.returncode for client in clients] == [0] * CLIENTS
        assert counts(address)["traces"] == CLIENTS * FUNCTIONS
    for client, text in enumerate(said):
        assert text.strip() == str([1.0 + FUNCTIONS * client] * FUNCTIONS)
