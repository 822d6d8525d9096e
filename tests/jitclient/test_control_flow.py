"""Control flow that depends on values, in functions that run on the daemon: as under jax.jit, bit for bit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jitclient

X = np.linspace(-1, 1, 6, dtype=np.float32)
CASES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {}


def case(*calls: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(fun: Callable[..., Any]) -> Callable[..., Any]:
        CASES[fun.__name__] = fun, list(calls)
        return fun

    return add


@case((X,))
def where(x: Any) -> Any:
    return jnp.where(x > 0, x, -2 * x)


@case((X, True), (X, False))
def select(x: Any, flag: Any) -> Any:
    return lax.select(jnp.full(x.shape, flag), x, jnp.zeros_like(x))


@case((X, 1.5), (X, -1.5))
def cond(x: Any, by: Any) -> Any:
    return lax.cond(by > 0, lambda x: x * by, lambda x: x - by, x)


@case((0, X), (1, X), (2, X), (9, X))
def switch(which: Any, x: Any) -> Any:
    return lax.switch(which, [jnp.sin, jnp.cos, lambda x: x * 0], x)


@case((X,), (np.zeros((0,), np.float32),))
def scan(xs: Any) -> Any:
    return lax.scan(lambda total, x: (total + x, total * x), jnp.float32(0), xs)


@case((X, 0), (X, 4))
def fori_loop(x: Any, times: Any) -> Any:
    return lax.fori_loop(0, times, lambda i, x: x * 0.5 + i, x)


@case((100.0,), (0.5,))
def while_loop(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] > 1, lambda s: (s[0] / 2, s[1] + 1), (x, 0))


@case((100.0,), (0.5,), (1e9,))
def bounded_loop_with_history(x: Any) -> Any:
    """Halves until 1 is reached, ten times at most, and keeps every value on the way."""

    def step(i: Any, state: Any) -> Any:
        x, history, steps = state
        goes_on = x > 1
        x = jnp.where(goes_on, x / 2, x)
        return x, history.at[i].set(jnp.where(goes_on, x, jnp.nan)), steps + goes_on

    return lax.fori_loop(0, 10, step, (x, jnp.full(10, jnp.nan), 0))


@case((X,))
def map_and_nested(x: Any) -> Any:
    return lax.map(lambda v: lax.cond(v > 0, lambda v: lax.fori_loop(0, 3, lambda _, v: v + v, v), jnp.abs, v), x)


@case((X,))
def associative_scan(x: Any) -> Any:
    return lax.associative_scan(jnp.add, x)


@case((X,))
def gradient_through_a_scan(x: Any) -> Any:
    return jax.grad(lambda x: lax.scan(lambda c, v: (c * v, c), jnp.float32(1), x)[0])(x)


@case((np.uint32(3),))
def keys_in_a_loop(seed: Any) -> Any:
    def step(key: Any, _: Any) -> Any:
        key, used = jax.random.split(key)
        return key, jax.random.uniform(used)

    return lax.scan(step, jax.random.key(seed), None, length=3)[1]


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_jax_gives_with_one_trace(name: str, counts: Callable[..., Any]) -> None:
    fun, calls = CASES[name]
    ours, theirs = jitclient.jit(fun), jax.jit(fun)
    shapes = {str(jax.tree.map(jnp.shape, call)) for call in calls}
    before = counts()["traces"]
    for call in calls:
        mine, yours = ours(*call), theirs(*call)
        assert jax.tree.structure(mine) == jax.tree.structure(yours)
        for one, other in zip(jax.tree.leaves(mine), jax.tree.leaves(yours), strict=True):
            assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert counts()["traces"] == before + len(shapes)


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    "fun",
    [
        lambda x: lax.cond(x, lambda: 1.0, lambda: 2),
        lambda x: lax.scan(lambda c, v: (c, v), x, jnp.zeros((2, 3)), length=5),
        lambda x: lax.while_loop(lambda c: c > 0, lambda c: (c, c), x),
    ],
    ids=["types of branches", "lengths", "types of the carry"],
)
def test_its_mistakes_raise_what_jax_raises(fun: Callable[..., Any]) -> None:
    errors = []
    for jit in (jax.jit, jitclient.jit):
        with pytest.raises((TypeError, ValueError)) as caught:
            jit(fun)(1.5)
        errors.append((type(caught.value), str(caught.value).splitlines()[0][:60]))
    assert errors[0] == errors[1]
