"""What a variable has made of a library in a program counts for that program, whatever others asked the daemon for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
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
        for way, negative in [("nan", "nan"), ("off", "-2.0"), ("nan", "nan")]:
            assert run_script(PROGRAM, env={"JITSERVER_ADDRESS": address, "EQX_ON_ERROR": way}) == [negative, 2.0]
        assert counts(address)["traces"] == 2
