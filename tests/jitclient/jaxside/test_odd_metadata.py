"""Nodes with metadata that cannot be compared or hashed, as arrays cannot: a call gives what it gives in JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")


class Refusing:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("of __eq__")

    def __hash__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        raise RuntimeError("of __bool__")

    def sum(self) -> int:
        return 7


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def sum(self) -> int:
        return 8


METADATA: dict[str, list[Any]] = {
    "an array": [np.arange(3), np.arange(3)],
    "an array and another": [np.arange(3), np.arange(4)],
    "an array of one element": [np.arange(1), np.arange(1)],
    "an array without axes": [np.ones(()), np.ones(()), np.zeros(())],
    "a scalar of numpy": [np.float32(2), np.float32(2), np.float32(3)],
    "an array of jax": [jnp.arange(2), jnp.arange(2)],
    "a tuple with an array": [(np.arange(2),), (np.arange(2),)],
    "a dict with an array": [{"a": np.arange(2)}, {"a": np.arange(2)}],
    "what refuses to be compared": [Refusing(), Refusing()],
    "what cannot be hashed": [Unhashable(), Unhashable()],
}


def outcomes(jit: Callable[..., Any], metadata: list[Any]) -> list[Any]:
    class Node:  # one for each, as JAX keeps what it compared
        def __init__(self, x: Any, meta: Any) -> None:
            self.x, self.meta = x, meta

    jax.tree_util.register_pytree_node(
        Node, lambda node: ((node.x,), node.meta), lambda meta, children: Node(*children, meta)
    )

    @jit
    def use(node: Any) -> Any:
        return node.x * 2 + (node.meta.sum() if hasattr(node.meta, "sum") else len(node.meta))

    found: list[Any] = []
    for meta in metadata:
        try:
            found.append(np.asarray(use(Node(np.ones(2, np.float32), meta))).tolist())
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("kind", METADATA)
def test_a_call_gives_what_it_gives_in_jax(kind: str) -> None:
    here = outcomes(jitclient.jit, METADATA[kind])
    assert here == outcomes(jax.jit, METADATA[kind])
    assert isinstance(here[0], list)
