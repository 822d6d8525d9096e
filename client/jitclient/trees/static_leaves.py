"""Leaves that are part of the program instead of its input.

A static leaf is a node without children that keeps a value beside them, as JAX's own static fields do. So the value
belongs to the structure of the arguments, which each program is made for, and a tree that is put together again has
the bare value in its place.
"""

import functools
from typing import Any


class StaticLeaf:
    """Stands for a value in a tree that is about to be flattened."""

    __slots__ = ("meta",)

    def __init__(self, value: Any) -> None:
        self.meta = (type(value), value)  # 1, 1.0 and True are equal, and make different programs


def value_of(meta: tuple[type, Any]) -> Any:
    """The value, out of what the node keeps."""
    return meta[1]


@functools.cache
def register() -> None:
    """Tells JAX of them. Imports jax."""
    from jax import tree_util

    tree_util.register_pytree_node(StaticLeaf, lambda leaf: ((), leaf.meta), lambda meta, _: value_of(meta))
