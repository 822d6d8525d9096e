"""A program that sets what a library keeps in its modules gets its own values; its next process finds the program."""

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
def test_a_library_s_own_jits_obey_the_program_s_variables(own: Any) -> None:
    with own.serving():
        for way, negative in [("nan", "nan"), ("off", "-2.0")]:
            assert own.run(BY_VARIABLE, EQX_ON_ERROR=way) == [negative, 2.0]
        before = own.counts()
        for way, negative in [("off", "-2.0"), ("nan", "nan")]:
            assert own.run(BY_VARIABLE, EQX_ON_ERROR=way) == [negative, 2.0]
        assert found_all(before, own.counts())


def found_all(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether no process has made or traced a program since."""
    return all(before[name] == after[name] for name in ("traces", "client_traces", "local_runs", "misses"))
