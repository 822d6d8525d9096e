"""Leaves that are part of the program instead of its input.

A static leaf is a tree node without children whose metadata is the value, like JAX's own static fields. So the value is
part of the structure, and each structure has a program of its own. A rebuilt tree has the plain value in its place.
"""

import functools
from typing import Any


class StaticLeaf:
    """Wrapper for a value in a tree that is to be flattened."""

    __slots__ = ("meta",)

    def __init__(self, value: Any) -> None:
        # The type is part of the metadata because 1, 1.0 and True are equal, but make different programs.
        self.meta = (type(value), value)


@functools.cache
def register() -> None:
    """Register static leaves with JAX. Imports jax."""
    from jax import tree_util

    tree_util.register_pytree_node(StaticLeaf, lambda leaf: ((), leaf.meta), lambda meta, _: meta[1])
