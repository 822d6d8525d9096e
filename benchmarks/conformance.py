"""Conformance: every public function of `jax.numpy`, `jax.lax`, `jax.nn`, `jax.scipy` and `jax.random` under `jax.jit`
and under `jitclient.jit`, on the inputs of its docstring's examples, or others, and with mistakes in them.

After them comes every form of index on arrays of the daemon's: see indexing.py.

Compared are the bits of values, dtypes, weak types, shardings, tree structures, and the classes of errors. With
XLA_FLAGS=--xla_force_host_platform_device_count=2 each function is also called with an array spread over the devices.
"""

import collections
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import comparing, docstring_calls, indexing
from benchmarks.docstring_calls import Call
from benchmarks.inputs_by_name import WITHOUT_ARRAYS, calls_by_name
from benchmarks.mistakes import with_mistakes
from benchmarks.reasons import REASONS
from benchmarks.sample_inputs import first_accepted

_COLUMNS = ("functions", "calls", "sharded", "mistakes", "agree", "reasons", "differ")


def run() -> dict[str, Any]:
    """Runs all calls; returns counts by module, every difference with its reason, and what could not be called."""
    os.environ["JITSERVER_FALLBACK"] = "error"  # what ran in this process would agree with itself
    counts: dict[str, collections.Counter[str]] = {}
    differences: list[dict[str, str]] = []
    uncalled: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for module, name, function in _shown_on_terminals(list(_everything())):
            calls = _calls_of(name, function)
            if not calls:
                uncalled[name] = WITHOUT_ARRAYS.get(name, "")
                continue
            count = counts.setdefault(module, collections.Counter())
            count["functions"] += 1
            for kind, call, form in _forms_of(calls):
                count[kind] += 1
                difference = _difference(name, call, form)
                count[_verdict(difference)] += 1
                differences += [] if difference is None else [difference]
        count = counts.setdefault(indexing.NAME, collections.Counter())
        for found in indexing.all_differences():
            count["calls"] += 1
            difference = None if found is None else {**found._asdict(), "reason": ""}
            count[_verdict(difference)] += 1
            differences += [] if difference is None else [difference]
    return {
        "jax": jax.__version__,
        "modules": {name: dict(count) for name, count in counts.items()},
        **{column: sum(count[column] for count in counts.values()) for column in _COLUMNS},
        "differences": differences,
        "uncalled": uncalled,
    }


def holds(result: dict[str, Any]) -> bool:
    """Whether every function was called, and every difference has a reason."""
    return not result["differ"] and all(result["uncalled"].values())


def show(result: dict[str, Any]) -> None:
    """Prints the counts, every difference with its reason, and what was not called."""
    console = Console()
    table = Table("module", *_COLUMNS, title=f"conformance with jax {result['jax']}")
    for name, count in result["modules"].items():
        table.add_row(name, *(str(count.get(column, 0)) for column in _COLUMNS))
    table.add_row("all", *(str(result[column]) for column in _COLUMNS), style="bold")
    console.print(table)
    for found in result["differences"]:
        lines = (
            found["call"],
            f"jax: {found['jax']}",
            f"jitserver: {found['jitserver']}",
            f"reason: {found['reason']}",
        )
        console.print("\n  ".join(lines), markup=False)
    console.print(f"{len(result['uncalled'])} are not called:")
    for name, reason in result["uncalled"].items():
        console.print(f"  {name}: {reason or 'no inputs for it'}", markup=False)


def _everything() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    for module in docstring_calls.modules():
        for name, function in docstring_calls.functions(module).items():
            yield module.__name__, name, function


def _shown_on_terminals(items: list[Any]) -> Iterator[Any]:
    console = Console(stderr=True)
    yield from track(items, "conformance", console=console, disable=not console.is_terminal)


def _calls_of(name: str, function: Callable[..., Any]) -> list[Call]:
    if name in WITHOUT_ARRAYS:
        return []
    for source in (docstring_calls.calls_in_example, calls_by_name, first_accepted):
        calls = list(source(name, function))
        if calls:
            return calls
    return []


def _forms_of(calls: list[Call]) -> Iterator[tuple[str, Call, comparing.Form]]:
    """All that is compared for one function, each with the column in which it counts."""
    for call in calls:
        yield from (("calls", call, form) for form in comparing.forms(call))
    yield from (("sharded", calls[0], form) for form in comparing.sharded(calls[0]))
    for wrong in with_mistakes(calls[0]):
        yield from (("mistakes", wrong, form) for form in list(comparing.forms(wrong))[:1])


def _difference(name: str, call: Call, form: comparing.Form) -> dict[str, str] | None:
    expected, found = comparing.outcomes(form)
    if found == expected:
        return None
    return {
        "call": comparing.text(call),
        "jax": comparing.shown(expected),
        "jitserver": comparing.shown(found),
        "reason": REASONS.get(name, ""),
    }


def _verdict(difference: dict[str, str] | None) -> str:
    if difference is None:
        return "agree"
    return "reasons" if difference["reason"] else "differ"
