"""A program that sets what a library keeps in its modules gets its own values; its next process finds the program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BY_VARIABLE = """
    import json, equinox, jitclient

    @jitclient.jit
    def checked(x):
        return equinox.error_if(x, x < 0, "negative") * 2

    print(json.dumps([repr(float(checked(-1.0))), float(checked(1.0))]))
"""


@pytest.mark.timeout(300)
def test_a_library_s_own_jits_obey_the_program_s_variables(
    short_path: Path, new_daemon: Any, run_script: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    address = f"unix:{short_path}/d.sock"
    with new_daemon(address):
        for way, negative in [("nan", "nan"), ("off", "-2.0")]:
            assert run_script(BY_VARIABLE, env={"JITSERVER_ADDRESS": address, "EQX_ON_ERROR": way}) == [negative, 2.0]
        before = counts(address)
        for way, negative in [("off", "-2.0"), ("nan", "nan")]:
            assert run_script(BY_VARIABLE, env={"JITSERVER_ADDRESS": address, "EQX_ON_ERROR": way}) == [negative, 2.0]
        assert found_all(before, counts(address))


def found_all(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether no process has made or traced a program since."""
    return all(before[name] == after[name] for name in ("traces", "client_traces", "local_runs", "misses"))
