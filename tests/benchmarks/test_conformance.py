"""The conformance run finds what JAX's documentation calls, agrees where nothing differs, and sees what differs."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

TOP = Path(__file__).parents[2]
PROGRAM = """
    import json, os, sys
    sys.path.append({top!r})
    from benchmarks import comparing, conformance, docstring_calls, indexing
    docstring_calls.MODULES, indexing.SHAPES = {modules!r}, ()
    {change}
    result = conformance.run()
    conformance.show(result)
    print(json.dumps({{**result, "holds": conformance.holds(result), "files": os.listdir()}}))
"""
BREAK = """
    comparing.jitclient.jit = lambda fun: lambda *args: comparing.jax.jit(fun)(*args)[0]
"""
EXPLAIN = f"""{BREAK}
    conformance.REASONS.update({{"jax.scipy.cluster.vq.vq": "a test", "jax.scipy.integrate.trapezoid": "a test"}})
"""


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(TOP))
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("change", ["", BREAK, EXPLAIN], ids=["as it is", "ours broken", "ours broken for a reason"])
def test_differences_are_counted(run_script: Callable[..., Any], change: str) -> None:
    modules = ("jax.scipy.cluster.vq", "jax.scipy.integrate")
    result = run_script(PROGRAM.format(top=str(TOP), modules=modules, change=change.strip()))
    assert result["functions"] == 2
    assert result["calls"] >= 2
    assert result["mistakes"] == 4
    assert result["uncalled"] == {}
    assert result["agree"] + len(result["differences"]) == result["calls"] + result["mistakes"]
    broken = result["calls"]  # a mistake raises before anything can be broken
    assert (result["differ"], result["reasons"]) == {"": (0, 0), BREAK: (broken, 0), EXPLAIN: (0, broken)}[change]
    assert result["holds"] == (change != BREAK)
    assert result["files"] == ["program.py"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # jax 0.12 has them still
def test_the_tables_name_functions_that_jax_has(benchmarks: Callable[[str], Any]) -> None:
    tables = benchmarks("inputs_by_name")
    named = {*tables.WITHOUT_ARRAYS, *tables._WRAPPED, *tables._GIVEN, *benchmarks("reasons").REASONS}
    missing = [name for name in named if not hasattr(_module_of(name), name.rpartition(".")[2])]
    assert not missing
    assert not {*tables.WITHOUT_ARRAYS} & {*tables._WRAPPED, *tables._GIVEN}


def test_calls_by_name_are_calls_that_jax_takes(benchmarks: Callable[[str], Any]) -> None:
    tables, taken = benchmarks("inputs_by_name"), []
    for name in ("jax.lax.scan", "jax.lax.conv_general_dilated", "jax.lax.psum_scatter", "jax.lax.pcast"):
        function = getattr(_module_of(name), name.rpartition(".")[2])
        taken += [call.function(*call.args, **call.kwargs) for call in tables.calls_by_name(name, function)]
    assert len(jax.tree.leaves(taken)) >= 6


def test_mistakes_change_the_first_array_only(benchmarks: Callable[[str], Any]) -> None:
    Call = benchmarks("docstring_calls").Call
    x, y = jnp.ones((2, 3)), jnp.zeros(4)
    wrong = list(benchmarks("mistakes").with_mistakes(Call(jnp.add, "add", (1, x), {"other": y})))
    assert [call.args[0] for call in wrong] == [1, 1]
    assert all(call.kwargs["other"] is y for call in wrong)
    assert wrong[0].args[1].shape == ()
    assert wrong[1].args[1].shape == (2, 3)
    assert jnp.issubdtype(wrong[1].args[1].dtype, jax.dtypes.prng_key)
    assert list(benchmarks("mistakes").with_mistakes(Call(jnp.eye, "eye", (3,), {}))) == []


def _module_of(name: str) -> Any:
    return importlib.import_module(name.rpartition(".")[0])
