"""A program as type checkers read it. Where they should find a mistake, and nowhere else, the line says `# wrong`."""

from collections.abc import Callable
from typing import Any, TypeVar, assert_type

import jax
import jax.numpy as jnp
import numpy as np

import jitclient

Params = dict[str, jax.Array]
Tree = TypeVar("Tree")


@jitclient.jit
def step(params: Params, x: jax.Array, rate: float = 0.1) -> tuple[Params, jax.Array]:
    return params, x * rate


@jitclient.jit(static_argnames="times", donate_argnums=0, deps=["SCALE"], keep_unused=True)
def scaled(x: jax.Array, times: int) -> jax.Array:
    return x * times


@jitclient.jit
def first(tree: Tree, x: jax.Array) -> Tree:
    return tree


class Model:
    w: jax.Array

    @jitclient.jit
    def apply(self, x: jax.Array) -> jax.Array:
        return self.w @ x

    @staticmethod
    @jitclient.jit
    def double(x: jax.Array) -> jax.Array:
        return x * 2

    @jitclient.jit(static_argnums=0)
    def scale(self, x: jax.Array, *, by: int = 2) -> jax.Array:
        return x * by


def plain(x: jax.Array, /, *, flag: bool = False) -> jax.Array:
    return -x if flag else x


called = jitclient.jit(plain, static_argnames=["flag"], inline=True, auto_static=True)
params: Params = {}
model = Model()
x = jnp.ones(3)


def calls() -> None:
    new, loss = step(params, x, rate=1.0)
    assert_type(new, Params)
    assert_type(loss, jax.Array)
    assert_type(scaled(loss, times=2), jax.Array)
    assert_type(called(x, flag=True), jax.Array)
    assert_type(first({"a": 1}, x), dict[str, int])
    assert_type(model.apply(x), jax.Array)
    assert_type(model.scale(x, by=3), jax.Array)
    assert_type(Model.apply(model, x), jax.Array)
    assert_type(model.double(x), jax.Array)
    assert_type(Model.double(x), jax.Array)
    assert_type(jitclient.jit(lambda: 2)(), int)
    assert_type(jitclient.jit(model.apply)(x), jax.Array)


def wrong_calls() -> None:
    step(params, "x")  # wrong
    step(params)  # wrong
    step(params, x, x, x)  # wrong
    step(params, x, rat=0.1)  # wrong
    scaled(x, times="2")  # wrong
    called(x=x)  # wrong
    model.apply("x")  # wrong
    model.apply(model, x)  # wrong
    model.scale(x, 3)  # wrong
    Model.apply(x)  # wrong
    model.double()  # wrong


def keywords() -> None:
    jitclient.jit(plain, static_argnum=1)  # wrong
    jitclient.jit(plain, static_argnums="a")  # wrong
    jitclient.jit(static_argnames=1)  # wrong
    jitclient.jit(donate_argnames=["x"])(plain)(x, flag=1 == 1)
    jitclient.jit(3)  # wrong


def stages() -> None:
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    called.lower(shape).compile()(x)
    called.trace(shape).jaxpr
    called.eval_shape(shape).shape
    called.clear_cache()
    assert_type(step.__wrapped__(params, x), tuple[Params, jax.Array])
    called.lowered(shape)  # wrong
    assert_type(called.lower(shape), Any)  # wrong


def arrays(a: jitclient.Array) -> None:
    """A handle is a `jax.Array`, to type checkers as to JAX."""
    for made in (a + 1, 1 + a, -a, a @ a, a == a, a[0], a.T, a.sum(axis=0), a.at[0].set(1), jnp.sin(a)):
        called(made)
    assert_type(a.sum(), jax.Array)
    assert_type(a.shape, tuple[int, ...])
    a.summ()  # wrong
    np.asarray(a)


def other_names() -> None:
    decorate: Callable[[Callable[[int], float]], Callable[[int], float]] = jitclient.jit
    mapped = jax.vmap(decorate(float))
    assert_type(mapped(1), float)
    jitclient.connect("unix:/tmp/d.sock")
    jitclient.conect()  # wrong
    try:
        jitclient.connect(3)  # wrong
    except jitclient.DaemonUnavailable as error:
        assert_type(error, jitclient.DaemonUnavailable)
