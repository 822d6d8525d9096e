"""The description of data tells apart what differs, and is the same for what is equal."""

import collections
import functools
import operator
import typing
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
import scipy.sparse
import scipy.stats
from scipy.spatial.transform import Rotation

from jitclient.capture.manifest import changes
from jitclient.capture.manifest.trees import Described, digest_of_tree


def named_as_tanh(scale: float) -> Callable[..., Any]:
    @functools.wraps(jnp.tanh)
    def mine(x: Any) -> Any:
        return scale * x

    return mine


def frame(value: float) -> Any:
    return pytest.importorskip("pandas").DataFrame({"a": [value]})


KINDS: dict[str, Callable[[Any], Any]] = {
    "DataFrame": frame,
    "deque": lambda n: collections.deque(maxlen=n),
    "function with the name of another": named_as_tanh,
    "items": lambda n: {"a": n}.items(),
    "keys": lambda n: {n: 1}.keys(),
    "literal": lambda n: typing.Literal[n],
    "methodcaller": lambda n: operator.methodcaller("sum", n),
    "itemgetter": lambda n: operator.itemgetter(n),
    "normal distribution": lambda n: scipy.stats.norm(scale=n),
    "partial of jax": lambda n: jax.tree_util.Partial(jnp.multiply, n),
    "PartitionSpec": lambda n: jax.sharding.PartitionSpec(f"axis {n}"),
    "polynomial": lambda n: np.polynomial.Polynomial([1.0, n]),
    "rotation": lambda n: Rotation.from_euler("x", n),
    "seeds": lambda n: np.random.SeedSequence(n),
    "shape": lambda n: jax.ShapeDtypeStruct((n,), np.float32),
    "sparse": lambda n: scipy.sparse.csr_matrix(n * np.eye(2)),
    "spline": lambda n: scipy.interpolate.CubicSpline([0.0, 1.0, 2.0], [0.0, n, 2.0]),
    "tree": lambda n: jax.tree.structure([0] * n),
    "vmap": lambda n: jax.vmap([jnp.sin, jnp.cos][n - 1]),
    "weak type": lambda n: jax.lax.full((), 1, dtype=None if n == 1 else np.dtype("int32")),
}
"""Kinds of objects of trusted packages: a function makes one that holds a number."""


def digest(value: Any) -> bytes:
    return digest_of_tree(Described().tree(value))


@pytest.mark.parametrize("kind", KINDS)
def test_objects_that_hold_another_value_differ(kind: str) -> None:
    made = KINDS[kind]
    assert digest(made(1)) == digest(made(1)) != digest(made(2))
    assert digest({"held": [made(1)]}) != digest({"held": [made(2)]})


def test_the_id_of_a_function_or_class_on_itself_does_not_count() -> None:
    def api() -> None:
        pass

    class Layer:
        pass

    for each in (api, Layer):
        before = digest(each)
        each.symbol_id = id(each)  # type: ignore[union-attr]
        assert digest(each) == before
        each.symbol_id = id(each) + 1  # type: ignore[union-attr]
        assert digest(each) != before


@pytest.mark.parametrize(("before", "after", "counts"), [(0, 1, True), (False, True, False), (0, True, False)])
def test_integer_that_a_trace_changes_is_a_counter_and_a_flag_is_not(before: Any, after: Any, counts: bool) -> None:
    trees = [Described().tree({"held": [value]}) for value in (before, after)]
    assert bool(changes.changed_counters(*trees)) is counts


def test_repeated_objects_keep_their_place() -> None:
    one, other = [1], [2]
    trees = [Described().tree({"a": one, "b": other, "current": held, "calls": 0}) for held in (one, other)]
    without = [changes.remove_places(tree, [(4, 2)]) for tree in trees]
    assert without[0] != without[1]
