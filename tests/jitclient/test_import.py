"""`import jitclient` is cheap: it loads none of the heavy packages, and nothing of the daemon."""

from collections.abc import Callable
from typing import Any

import pytest

HEAVY = ("jax", "jitserver", "rpyc", "rich", "numpy", "msgspec")
PROGRAM = """
    import json, sys
    {first}
    import jitclient
    print(json.dumps([name for name in {heavy!r} if name in sys.modules]))
"""


def test_import_loads_nothing_heavy(run_script: Callable[..., Any]) -> None:
    assert run_script(PROGRAM.format(first="", heavy=HEAVY)) == []


@pytest.mark.parametrize("name", HEAVY)
def test_the_test_above_can_fail(run_script: Callable[..., Any], name: str) -> None:
    assert name in run_script(PROGRAM.format(first=f"import {name}", heavy=HEAVY))


def test_a_call_imports_no_jax_by_itself(run_script: Callable[..., Any], daemon: str) -> None:
    loaded = run_script(
        """
        import json, sys, numpy as np, jitclient

        @jitclient.jit
        def double(x):
            return x * 2

        assert double(np.arange(3)).tolist() == [0, 2, 4]
        print(json.dumps([name for name in ("jax", "jaxlib", "jitserver") if name in sys.modules]))
        """
    )
    assert loaded == []


def test_public_names_are_pinned() -> None:
    import jitclient

    assert jitclient.__all__ == sorted(
        [
            "AddressTaken",
            "AmbientInput",
            "Array",
            "ArrayBudgetExceeded",
            "ArrayLost",
            "CaptureError",
            "CrashesDaemon",
            "DaemonDraining",
            "DaemonError",
            "DaemonLost",
            "DaemonUnavailable",
            "Explanation",
            "Incompatible",
            "JitserverError",
            "ProgramLost",
            "ProgramsDiffer",
            "ProtocolError",
            "RemoteError",
            "SessionBusy",
            "SettingsError",
            "auto_vmap",
            "block_until_ready",
            "connect",
            "device_get",
            "device_put",
            "devices",
            "explain",
            "function_key",
            "jit",
            "keep",
            "kept",
        ]
    )
    for name in jitclient.__all__:
        assert getattr(jitclient, name) is not None
