"""The conformance run finds what JAX's documentation calls, agrees where nothing differs, and sees what differs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]
PROGRAM = """
    import json, sys
    sys.path.append({top!r})
    from benchmarks import conformance, docstring_calls
    docstring_calls.MODULES = ("jax.scipy.cluster.vq", "jax.scipy.integrate")
    {break_ours}
    print(json.dumps(conformance.run()))
"""
BREAK = "conformance.jitclient.jit = lambda fun: lambda *args: conformance.jax.jit(fun)(*args)[0]"


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("break_ours", ["", BREAK], ids=["as it is", "ours broken"])
def test_differences_are_counted(run_script: Callable[..., Any], break_ours: str) -> None:
    result = run_script(PROGRAM.format(top=str(TOP), break_ours=break_ours))
    assert result["functions"] == 2
    assert result["calls"] >= 2
    assert result["uncalled"] == []
    assert result["agree"] == (0 if break_ours else result["calls"])
    assert len(result["differences"]) == result["calls"] - result["agree"]
