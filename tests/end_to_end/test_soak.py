"""Hundreds of functions, and a daemon that stays within its bounds of memory and of memory maps."""

import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import HASTY

PROGRAM = """
    import json, sys, time
    import jitclient, numpy as np

    FUNCTIONS, TURN = int(sys.argv[1]), 20
    x = np.arange(4, dtype=np.float32)
    made, wrong, most = [], [], {"maps": 0, "programs": 0}

    def daemon(word):
        from jitserver.cli.common import ask
        from jitclient.wire.introspection import Status
        from jitclient.wire.messages import Verb
        return ask(Verb.STATUS, None, Status)

    def one(n):
        @jitclient.jit
        def f(x):
            return x * n + n
        return f

    def look():
        now = daemon(None)
        with open(f"/proc/{now.pid}/maps") as file:
            most["maps"] = max(most["maps"], sum(1 for _ in file))
        most["programs"] = max(most["programs"], now.entries)

    def check(n):
        if not np.array_equal(np.asarray(made[n](x)), x * n + n):
            wrong.append(n)

    for n in range(FUNCTIONS):
        made.append(one(float(n)))
        check(n)
        if n % TURN == 0:
            look()
    for n in range(0, FUNCTIONS, 7):  # most of these have left the memory
        check(n)
    look()
    now = daemon(None)
    print(json.dumps({"wrong": wrong, **most, "traces": now.traces, "restores": now.restores}))
"""
FUNCTIONS = 250
MAX_PROGRAMS = 50

IDLE_SOON = """
    import jitserver.store.entry

    jitserver.store.entry._IDLE_SECONDS = 0.5
"""
"""A `sitecustomize` of the daemon, where a program that was called in the last ten seconds would stay in the memory."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hundreds_of_functions_of_one_client(
    short_path: Path, new_daemon: Callable[..., Any], run_script: Callable[..., Any]
) -> None:
    address = f"unix:{short_path}/d.sock"
    fast = {"XLA_FLAGS": HASTY}
    (short_path / "sitecustomize.py").write_text(textwrap.dedent(IDLE_SOON))
    paths = os.pathsep.join(filter(None, (str(short_path), os.environ.get("PYTHONPATH"))))
    with new_daemon(address, "--program-memory", str(MAX_PROGRAMS), env={"PYTHONPATH": paths, **fast}) as daemon:
        before = len(re.findall("\n", Path(f"/proc/{daemon.pid}/maps").read_text()))
        found = run_script(PROGRAM, str(FUNCTIONS), env={"JITSERVER_ADDRESS": address, **fast})
    assert found["wrong"] == []
    assert found["traces"] == FUNCTIONS  # those that had left were not made again
    assert found["restores"] >= FUNCTIONS // 20
    assert found["programs"] < 0.9 * FUNCTIONS
    assert found["maps"] - before < 10 * found["programs"] + 500
