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


def test_a_call_whose_program_is_found_imports_no_jax(run_script: Callable[..., Any], daemon: str) -> None:
    program = """
        import json, sys, numpy as np, jitclient

        @jitclient.jit
        def double(x):
            return x * 2

        assert double(np.arange(3)).tolist() == [0, 2, 4]
        print(json.dumps([name for name in ("jax", "jaxlib", "jitserver") if name in sys.modules]))
    """
    assert run_script(program) == ["jax", "jaxlib"]  # to trace the function, too
    assert run_script(program) == []


def test_a_jax_program_whose_programs_are_found_imports_no_pallas(run_script: Callable[..., Any], daemon: str) -> None:
    program = """
        import json, sys, jax, numpy as np, jitclient

        @jitclient.jit
        def triple(x):
            return x * 3

        assert triple(np.arange(3)).tolist() == [0, 3, 6]
        print(json.dumps([name for name in ("jax.extend", "jax._src.pallas") if name in sys.modules]))
    """
    run_script(program)
    assert run_script(program) == []


OF_CALLS = (
    "cloudpickle",
    "jitclient.arrays",
    "jitclient.calls.general_path",
    "jitclient.capture.dump",
    "jitclient.capture.codec.values",
    "jitclient.session.session",
    "jitclient.jaxside.context",
    "jitclient.wire",
    "msgspec",
    "rpyc",
)
DECORATED = """
    import json, sys, numpy as np, jitclient

    def loaded():
        return [name for name in {names!r} if name in sys.modules]

    @jitclient.jit
    def double(x):
        return x * 2

    @jitclient.jit(static_argnames="times", donate_argnums=0, deps=["SCALE"])
    def scaled(x, times):
        return x * times

    repr(scaled), scaled._cache_size(), scaled.clear_cache()
    before = loaded()
    assert double(np.arange(3)).tolist() == [0, 2, 4]
    print(json.dumps([before, loaded()]))
"""


def test_a_function_that_is_not_called_loads_nothing_that_calls_need(
    run_script: Callable[..., Any], daemon: str
) -> None:
    before, after = run_script(DECORATED.format(names=OF_CALLS))
    assert before == []
    assert after == list(OF_CALLS), "these are the names of what a call loads"


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
            "HostUnreachable",
            "Explanation",
            "Incompatible",
            "JitserverError",
            "Pool",
            "ProgramLost",
            "ProgramsDiffer",
            "ProtocolError",
            "RemoteError",
            "SessionBusy",
            "SettingsError",
            "WorkerLost",
            "WrongUser",
            "block_until_ready",
            "connect",
            "dask_plugin",
            "device_get",
            "device_put",
            "devices",
            "explain",
            "function_key",
            "install",
            "jit",
            "keep",
            "kept",
            "pool",
            "uninstall",
            "worker_setup",
        ]
    )
    for name in jitclient.__all__:
        assert getattr(jitclient, name) is not None
