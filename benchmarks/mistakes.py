"""Calls with a mistake in them: an array of a wrong rank, and one of a wrong dtype."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.docstring_calls import Call


def with_mistakes(call: Call) -> Iterator[Call]:
    """The call with its first array replaced by one that it most often does not take; none if it has no array."""
    leaves, structure = jax.tree.flatten((call.args, call.kwargs))
    first = next((n for n, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray))), None)
    if first is None:
        return
    for spoil in (_of_another_rank, _of_another_dtype):
        args, kwargs = jax.tree.unflatten(structure, _replaced(leaves, first, spoil))
        yield dataclasses.replace(call, name=f"{call.name} {spoil.__name__.strip('_')}", args=args, kwargs=kwargs)


def _replaced(leaves: list[Any], position: int, spoil: Callable[[Any], Any]) -> list[Any]:
    return [*leaves[:position], spoil(leaves[position]), *leaves[position + 1 :]]


def _of_another_rank(array: Any) -> Any:
    if not array.ndim:
        return jnp.broadcast_to(array, (2, 3))
    return array.ravel()[0] if array.size else array[None]


def _of_another_dtype(array: Any) -> Any:
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jnp.zeros(array.shape)
    return jax.random.split(jax.random.key(0), array.shape)
