"""A call under `jax.jit` and under `jitclient.jit`: the outcomes, in a form that can be compared."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import jitclient
from benchmarks.docstring_calls import Call
from benchmarks.quiet import quietly

Outcome = tuple[Any, ...]
Form = tuple[Callable[..., Any], list[Any]]
"""A function of arrays, and what it is called with."""

_MOST_ARRAY_BYTES = 1 << 20


def outcomes(form: Form) -> tuple[Outcome, Outcome]:
    """Return the outcome under JAX, and the one under the daemon."""
    jitted, arguments = form
    return _outcome(jax.jit(jitted), arguments), _outcome(jitclient.jit(jitted), arguments)


def forms(call: Call) -> Iterator[Form]:
    """The call with its arrays as the only arguments; and again with Python's numbers as arguments too."""
    leaves, structure = jax.tree.flatten((call.args, call.kwargs))
    arrays = _arrays(leaves)
    if sum(leaves[n].nbytes for n in arrays) > _MOST_ARRAY_BYTES:
        return
    numbers = [n for n, leaf in enumerate(leaves) if n in arrays or isinstance(leaf, (int, float, complex))]
    for chosen in [arrays] if numbers == arrays else [arrays, numbers]:
        yield _of_leaves(call.function, leaves, structure, chosen), [leaves[n] for n in chosen]


def sharded(call: Call) -> Iterator[Form]:
    """The call with one of its arrays spread over all devices; none if there is one device, or no array that fits."""
    leaves, structure = jax.tree.flatten((call.args, call.kwargs))
    arrays = _arrays(leaves)
    fitting = [(n, axis) for n in arrays for axis, length in enumerate(leaves[n].shape) if _divides(length)]
    if fitting and jax.device_count() > 1:
        position, axis = fitting[0]
        mesh = jax.make_mesh((jax.device_count(),), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
        spec = jax.sharding.PartitionSpec(*[None] * axis, "devices")
        leaves[position] = jax.device_put(leaves[position], jax.NamedSharding(mesh, spec))
        yield _of_leaves(call.function, leaves, structure, arrays), [leaves[n] for n in arrays]


def text(call: Call) -> str:
    """The call in one line."""
    given = [f"{value!r:.60}" for value in call.args] + [f"{key}={value!r:.60}" for key, value in call.kwargs.items()]
    return f"{call.name}({', '.join(given)})".replace("\n", " ")


def shown(outcome: Outcome) -> str:
    """An outcome in one line."""
    if outcome[0] == "raises":
        return f"raises {outcome[1]}"
    leaves = [
        f"{dtype}{list(shape)}{' weak' if weak else ''} {sharding} {np.frombuffer(data, 'u1')[:16].tobytes().hex()}"
        for dtype, shape, weak, sharding, data in outcome[1:]
    ]
    return f"{outcome[0]} {'; '.join(leaves)}"[:400]


def _arrays(leaves: list[Any]) -> list[int]:
    return [n for n, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))]


def _divides(length: int) -> bool:
    return length > 0 and length % jax.device_count() == 0


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
        with quietly():
            leaves, structure = jax.tree.flatten(jitted(*arguments))
            return (str(structure), *map(_described, leaves))
    except Exception as error:
        return "raises", f"{type(error).__module__}.{type(error).__qualname__}"


def _described(leaf: Any) -> tuple[Any, ...]:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    value = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    return str(leaf.dtype), leaf.shape, leaf.aval.weak_type, str(leaf.sharding), value.tobytes()
