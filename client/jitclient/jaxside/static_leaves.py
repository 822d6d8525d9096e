"""Leaves that are part of the program instead of its input.

A static leaf is a node without children whose metadata is the value, like JAX's own static fields. So the value is
part of the structure, for which each program is made. A tree that is rebuilt has the plain value in its place.
"""

import functools
from typing import Any


class StaticLeaf:
    """Wraps a value in a tree before it is flattened."""

    __slots__ = ("meta",)

    def __init__(self, value: Any) -> None:
        self.meta = (type(value), value)  # 1, 1.0 and True are equal, but make different programs


@functools.cache
def register() -> None:
    """Registers them with JAX. Imports jax."""
    from jax import tree_util

    tree_util.register_pytree_node(StaticLeaf, lambda leaf: ((), leaf.meta), lambda meta, _: meta[1])
