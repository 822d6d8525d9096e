"""Conformance: every public function of `jax.numpy`, `jax.lax`, `jax.nn`, `jax.scipy` and `jax.random` under `jax.jit`
and under `jitclient.jit`, on the inputs of its docstring's examples.

Compared are the bits of values, dtypes, weak types, tree structures, and the classes of errors.
"""

import collections
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import jitclient
from benchmarks import docstring_calls
from benchmarks.docstring_calls import Call
from benchmarks.sample_inputs import first_accepted

Outcome = tuple[Any, ...]

_MOST_ARRAY_BYTES = 1 << 20


def run() -> dict[str, Any]:
    """Runs all calls; returns counts by module, every difference, and what could not be called."""
    counts: dict[str, collections.Counter[str]] = {}
    differences: list[dict[str, str]] = []
    uncalled: list[str] = []
    for module, name, function in _shown_on_terminals(list(_everything())):
        calls = docstring_calls.calls_in_example(name, function) or list(first_accepted(name, function))
        count = counts.setdefault(module, collections.Counter())
        count["functions"] += bool(calls)
        uncalled += [] if calls else [name]
        for call in calls:
            for jitted, arguments in _forms(call):
                expected, found = (_outcome(jit(jitted), arguments) for jit in (jax.jit, jitclient.jit))
                count["calls"] += 1
                count["agree"] += found == expected
                if found != expected:
                    differences.append({"call": _text(call), "jax": _shown(expected), "jitserver": _shown(found)})
    columns = ("functions", "calls", "agree")
    return {
        "jax": jax.__version__,
        "modules": {name: dict(count) for name, count in counts.items()},
        **{column: sum(count[column] for count in counts.values()) for column in columns},
        "differences": differences,
        "uncalled": uncalled,
    }


def _everything() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    for module in docstring_calls.modules():
        for name, function in docstring_calls.functions(module).items():
            yield module.__name__, name, function


def _shown_on_terminals(items: list[Any]) -> Iterator[Any]:
    console = Console(stderr=True)
    yield from track(items, "conformance", console=console, disable=not console.is_terminal)


def show(result: dict[str, Any]) -> None:
    """Prints the counts and every difference."""
    console = Console()
    table = Table("module", "functions", "calls", "agree", title=f"conformance with jax {result['jax']}")
    for name, count in result["modules"].items():
        if count:
            table.add_row(name, *(str(count.get(column, 0)) for column in ("functions", "calls", "agree")))
    table.add_row("all", *(str(result[column]) for column in ("functions", "calls", "agree")), style="bold")
    console.print(table)
    for difference in result["differences"]:
        console.print(
            f"{difference['call']}\n  jax: {difference['jax']}\n  jitserver: {difference['jitserver']}", markup=False
        )
    console.print(f"{len(result['uncalled'])} have neither an example nor take the usual arguments: ", end="")
    console.print(", ".join(result["uncalled"]), markup=False)


def _forms(call: Call) -> Iterator[tuple[Callable[..., Any], list[Any]]]:
    """The call with its arrays as the only arguments; and again with Python's numbers as arguments too."""
    leaves, structure = jax.tree.flatten((call.args, call.kwargs))
    arrays = [n for n, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]
    if sum(leaves[n].nbytes for n in arrays) > _MOST_ARRAY_BYTES:
        return
    numbers = [n for n, leaf in enumerate(leaves) if n in arrays or isinstance(leaf, (int, float, complex))]
    for chosen in [arrays] if numbers == arrays else [arrays, numbers]:
        yield _of_leaves(call.function, leaves, structure, chosen), [leaves[n] for n in chosen]


def _of_leaves(
    function: Callable[..., Any], leaves: list[Any], structure: Any, chosen: list[int]
) -> Callable[..., Any]:
    kept = {n: leaf for n, leaf in enumerate(leaves) if n not in chosen}

    def jitted(*given: Any) -> Any:
        merged = kept | dict(zip(chosen, given, strict=True))
        args, kwargs = jax.tree.unflatten(structure, [merged[n] for n in sorted(merged)])
        return function(*args, **kwargs)

    return jitted


def _outcome(jitted: Callable[..., Any], arguments: list[Any]) -> Outcome:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaves, structure = jax.tree.flatten(jitted(*arguments))
            return (str(structure), *map(_described, leaves))
    except Exception as error:
        return ("raises", f"{type(error).__module__}.{type(error).__qualname__}")


def _described(leaf: Any) -> tuple[Any, ...]:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    value = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return str(leaf.dtype), leaf.shape, getattr(leaf, "weak_type", False), value.tobytes()


def _text(call: Call) -> str:
    given = [f"{value!r:.60}" for value in call.args] + [f"{key}={value!r:.60}" for key, value in call.kwargs.items()]
    return f"{call.name}({', '.join(given)})".replace("\n", " ")


def _shown(outcome: Outcome) -> str:
    if outcome[0] == "raises":
        return f"raises {outcome[1]}"
    leaves = [
        f"{dtype}{list(shape)}{' weak' if weak else ''} {np.frombuffer(data, 'u1')[:16].tobytes().hex()}"
        for dtype, shape, weak, data in outcome[1:]
    ]
    return f"{outcome[0]} {'; '.join(leaves)}"[:300]
