"""`auto_vmap`: maps a function over all leaves whose leading axis has the length of the batch."""

import sys
from collections.abc import Callable
from typing import Any

from jitclient.trees import tree


def auto_vmap(
    fun: Callable[[Any], Any], problem: Any, batch_size: int, *, split_keys: bool = False
) -> Callable[[Any], Any]:
    """Maps a function of one tree over a batch: every leaf of `problem` whose leading axis has length `batch_size` is
    batched; all others are the same for each element.

    Args:
        fun: a function of one tree like `problem`, for one element of the batch.
        problem: a tree of arrays, or of objects with shapes and dtypes. Other leaves are passed on unchanged.
        batch_size: the length of the batch.
        split_keys: whether each single typed PRNG key (`jax.random.key`) is split, so that each element gets its own.

    Returns:
        A function of one tree like `problem`, whose results have the batch as leading axis. Jit it like any other.

    Raises:
        ValueError: nothing in `problem` is batched, or the function is called with a tree of another structure.

    Example:
        >>> solve_all = jitclient.jit(jitclient.auto_vmap(solve, problem, batch_size=32))
        >>> solve_all(problem)
    """
    leaves, shape = tree.flatten(problem)
    structure = tree.structure_of(shape)
    is_split = [split_keys and _is_one_key(leaf) for leaf in leaves]
    axes = [0 if split or _is_batched(leaf, batch_size) else None for leaf, split in zip(leaves, is_split, strict=True)]
    if axes.count(None) == len(axes):
        raise ValueError(
            f"auto_vmap: no leaf of the problem has a leading axis of length {batch_size}; their shapes are "
            f"{[getattr(leaf, 'shape', None) for leaf in leaves]}"
        )

    def mapped(problem: Any) -> Any:
        import jax

        leaves, shape = tree.flatten(problem)
        if tree.structure_of(shape) != structure:
            raise ValueError("auto_vmap: the structure of the argument differs from that of the problem")
        rebuild = tree.unflattener(structure)
        own = [
            jax.random.split(leaf, batch_size) if split else leaf for leaf, split in zip(leaves, is_split, strict=True)
        ]
        return jax.vmap(lambda leaves: fun(rebuild(leaves)), in_axes=(axes,))(own)

    mapped.__name__ = mapped.__qualname__ = f"{getattr(fun, '__name__', 'function')}_over_batch"
    return mapped


def _is_batched(leaf: Any, batch_size: int) -> bool:
    return getattr(leaf, "shape", ())[:1] == (batch_size,)


def _is_one_key(leaf: Any) -> bool:
    jax = sys.modules.get("jax")
    if jax is None or getattr(leaf, "shape", None) != ():
        return False
    is_key: bool = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return is_key
