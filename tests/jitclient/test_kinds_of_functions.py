"""Every kind of function under `jit`, called and transformed every way, gives the value that it has under jax.jit."""

import collections
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

X = np.linspace(0.1, 1, 4, dtype=np.float32)
Jit = Callable[..., Any]


class Model:
    scale = 3.0

    def __init__(self, w: Any) -> None:
        self.w = w

    def __call__(self, x: Any) -> Any:
        return x * self.w

    def method(self, x: Any) -> Any:
        return x + self.w

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * cls.scale

    @staticmethod
    def static(x: Any) -> Any:
        return x - 1


def many(a: Any, b: Any = 2.0, *rest: Any, c: Any = 3.0, **more: Any) -> Any:
    return {"a": a * b + c, "rest": sum(rest), **more}


def total_of(x: Any) -> Any:
    return jnp.sum(jnp.sin(x) ** 2)


def weak(x: Any) -> Any:
    return x, x + 1, jnp.asarray(1.0) * 2, 2.0


Tagged = collections.namedtuple("Tagged", "tag value")
jax.tree_util.register_pytree_node(Tagged, lambda t: ((t.value,), t.tag), lambda tag, children: Tagged(tag, *children))


def attributed(x: Any) -> Any:
    return x * TUNED.factor  # type: ignore[attr-defined]


TUNED = functools.partial(attributed)
TUNED.factor = 3.0  # type: ignore[attr-defined]


KINDS: dict[str, Callable[[Jit], Any]] = {
    "function": lambda jit: jit(many)(X),
    "lambda": lambda jit: jit(lambda x: x * 2)(X),
    "bound method": lambda jit: jit(Model(2.0).method)(X),
    "classmethod": lambda jit: jit(Model.of_class)(X),
    "staticmethod": lambda jit: jit(Model.static)(X),
    "callable object": lambda jit: jit(Model(4.0))(X),
    "partial": lambda jit: jit(functools.partial(many, b=5.0, d=1))(X),
    "partial with attributes": lambda jit: jit(TUNED)(X),
    "registered named tuple": lambda jit: jit(lambda t: Tagged(t.tag + "b", t.value * len(t.tag)))(Tagged("a", X)),
    "partial of jitted": lambda jit: functools.partial(jit(many), b=5.0)(X),
    "builtin": lambda jit: jit(sum)([X, X]),
    "installed": lambda jit: jit(jnp.sin)(X),
    "defaults and keywords": lambda jit: jit(many)(X, 1, X, 2, c=4, d=X),
    "keywords alone": lambda jit: jit(many)(b=X, a=1, c=2),
    "no arguments": lambda jit: jit(lambda: jnp.arange(3))(),
    "no results": lambda jit: jit(lambda x: None)(X),
    "empty trees": lambda jit: jit(lambda x, y: (y, {}, [], x, None))((), {"a": (), "b": None, "c": X}),
    "None leaves": lambda jit: jit(lambda t: {**t, "c": None})({"a": None, "b": X}),
    "result is the argument": lambda jit: jit(lambda x, y: (y, x, x))(X, 2.0),
    "the same array twice": lambda jit: jit(lambda x, y: x * y)(X, X),
    "weak types": lambda jit: [jit(weak)(v) for v in (1, 1.0, 1j, True, X, np.float32(1), jnp.float32(1))],
    "bfloat16": lambda jit: jit(lambda x: x + 1)(X.astype(ml_dtypes.bfloat16)),
    "transformations inside": lambda jit: jit(lambda x: (jax.grad(total_of)(x), jax.vmap(jnp.exp)(x)))(X),
    "zero-size": lambda jit: jit(lambda x: (x.sum(), x.T))(np.zeros((0, 3), np.float32)),
    "raw keys": lambda jit: jit(jax.random.uniform)(jax.random.PRNGKey(1)),
    "typed keys": lambda jit: jit(lambda k: jax.random.uniform(jax.random.split(k)[0]))(jax.random.key(1)),
    "keys out": lambda jit: jax.random.key_data(jit(jax.random.split)(jax.random.key(1, impl="rbg"))),
    "static by number": lambda jit: jit(lambda x, n: x * n, static_argnums=1)(X, 3),
    "static from the end": lambda jit: jit(lambda x, n: x * n, static_argnums=-1)(X, 3),
    "static by name": lambda jit: jit(many, static_argnames=("b", "d"))(X, b=3, d=4),
    "static around": lambda jit: jit(lambda how, x, n: x + len(how) * n, static_argnums=(0, 2))("mul", X, 2),
    "static tuple": lambda jit: jit(lambda x, how: x + len(how), static_argnames="how")(X, how=("a", 1, None)),
    "static default": lambda jit: jit(many, static_argnames="b")(X),
    "keep_unused and inline": lambda jit: jit(lambda x, y: x + 1, keep_unused=True, inline=True)(X, 2),
    "compiler options": lambda jit: jit(jnp.cos, compiler_options={"xla_embed_ir_in_executable": True})(X),
}

TRANSFORMED: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: jax.grad(lambda x: f(x).sum())(X),
    "value_and_grad": lambda f: jax.value_and_grad(lambda x: f(x).sum())(X),
    "vmap": lambda f: jax.vmap(f)(X),
    "jvp": lambda f: jax.jvp(f, (X,), (X,)),
    "linearize": lambda f: jax.linearize(f, X)[1](X),
    "checkpoint": lambda f: jax.grad(lambda x: jax.checkpoint(f)(x).sum())(X),
    "make_jaxpr": lambda f: jnp.float32(len(jax.make_jaxpr(f)(X).out_avals)),
    "eval_shape": lambda f: jnp.zeros(jax.eval_shape(f, X).shape),
    "scan": lambda f: jax.lax.scan(lambda c, x: (f(c), f(x)), jnp.float32(1), X),
    "scan of": lambda f: jax.lax.scan(lambda c, x: (c, f(x) + f(2.0)), jnp.int32(0), X),
    "jax.jit around": lambda f: jax.jit(lambda x: f(x) * f(x))(X),
    "jacobian": lambda f: jax.jacobian(f)(X),
    "disable_jit": lambda f: _without_jit(f),
}

NESTED: dict[str, Callable[[], Any]] = {
    "ours in theirs": lambda: jax.jit(lambda x: jitclient.jit(smooth)(x) + 1)(X),
    "theirs in ours": lambda: jitclient.jit(lambda x: jax.jit(smooth)(x) + 1)(X),
    "ours in ours": lambda: jitclient.jit(lambda x: jitclient.jit(smooth)(x) + 1)(X),
    "grad of ours in ours": lambda: jitclient.jit(lambda x: smooth(x) + jax.grad(total)(x * 0 + 1)[0] * 0 + 1)(X),
}


def smooth(x: Any) -> Any:
    return jnp.sin(x) * x


total = jitclient.jit(lambda x: smooth(x).sum())


def _without_jit(f: Any) -> Any:
    with jax.disable_jit():
        return f(jnp.asarray(X))


def bounded_loop_with_history(x: Any) -> Any:
    """Halve until 1 is reached, ten times at most, and keep every value on the way."""

    def step(i: Any, state: Any) -> Any:
        x, history, steps = state
        is_large = x > 1
        x = jnp.where(is_large, x / 2, x)
        return x, history.at[i].set(jnp.where(is_large, x, jnp.nan)), steps + is_large

    return lax.fori_loop(0, 10, step, (x, jnp.full(10, jnp.nan), 0))


def nested_control_flow(x: Any) -> Any:
    return lax.map(lambda v: lax.cond(v > 0, lambda v: lax.fori_loop(0, 3, lambda _, v: v + v, v), jnp.abs, v), x)


def keys_in_a_loop(seed: Any) -> Any:
    def step(key: Any, _: Any) -> Any:
        key, used = jax.random.split(key)
        return key, jax.random.uniform(used)

    return lax.scan(step, jax.random.key(seed), None, length=3)[1]


Y = np.linspace(-1, 1, 6, dtype=np.float32)

CONTROL_FLOW: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "where": (lambda x: jnp.where(x > 0, x, -2 * x), [(Y,)]),
    "select": (lambda x, flag: lax.select(jnp.full(x.shape, flag), x, jnp.zeros_like(x)), [(Y, True), (Y, False)]),
    "cond": (lambda x, by: lax.cond(by > 0, lambda x: x * by, lambda x: x - by, x), [(Y, 1.5), (Y, -1.5)]),
    "switch": (lambda n, x: lax.switch(n, [jnp.sin, jnp.cos, lambda x: x * 0], x), [(n, Y) for n in (0, 1, 2, 9)]),
    "scan": (
        lambda xs: lax.scan(lambda total, x: (total + x, total * x), jnp.float32(0), xs),
        [(Y,), (np.zeros((0,), np.float32),)],
    ),
    "fori_loop": (lambda x, times: lax.fori_loop(0, times, lambda i, x: x * 0.5 + i, x), [(Y, 0), (Y, 4)]),
    "while_loop": (
        lambda x: lax.while_loop(lambda s: s[0] > 1, lambda s: (s[0] / 2, s[1] + 1), (x, 0)),
        [(100.0,), (0.5,)],
    ),
    "bounded loop with history": (bounded_loop_with_history, [(100.0,), (0.5,), (1e9,)]),
    "map and nested": (nested_control_flow, [(Y,)]),
    "associative_scan": (lambda x: lax.associative_scan(jnp.add, x), [(Y,)]),
    "gradient through a scan": (
        jax.grad(lambda x: lax.scan(lambda c, v: (c * v, c), jnp.float32(1), x)[0]),
        [(Y,)],
    ),
    "keys in a loop": (keys_in_a_loop, [(np.uint32(3),)]),
}
"""Functions whose control flow depends on values, each with its calls."""

MISTAKES: dict[str, Callable[..., Any]] = {
    "types of branches": lambda x: lax.cond(x, lambda: 1.0, lambda: 2),
    "lengths": lambda x: lax.scan(lambda c, v: (c, v), x, jnp.zeros((2, 3)), length=5),
    "types of the carry": lambda x: lax.while_loop(lambda c: c > 0, lambda c: (c, c), x),
}


def same(ours: Any, theirs: Any) -> None:
    """Assert the same tree, of equal values, dtypes and weak types."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, yours in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (mine.shape, mine.dtype, mine.weak_type) == (yours.shape, yours.dtype, yours.weak_type)
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(yours))


@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_what_jax_gives(kind: str) -> None:
    same(KINDS[kind](jitclient.jit), KINDS[kind](jax.jit))


@pytest.mark.parametrize("name", CONTROL_FLOW)
def test_control_flow_has_one_trace(name: str, counts: Callable[..., Any]) -> None:
    fun, calls = CONTROL_FLOW[name]
    ours, theirs = jitclient.jit(fun), jax.jit(fun)
    shapes = {str(jax.tree.map(jnp.shape, call)) for call in calls}
    before = counts()["traces"]
    for call in calls:
        same(ours(*call), theirs(*call))
    assert counts()["traces"] == before + len(shapes)


@pytest.mark.parametrize("fun", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_of_control_flow_raise_what_jax_raises(fun: Callable[..., Any]) -> None:
    errors = []
    for jit in (jax.jit, jitclient.jit):
        with pytest.raises((TypeError, ValueError)) as caught:
            jit(fun)(1.5)
        errors.append((type(caught.value), str(caught.value).splitlines()[0][:60]))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("how", TRANSFORMED)
def test_it_is_transformed_as_in_jax(how: str) -> None:
    same(TRANSFORMED[how](jitclient.jit(smooth)), TRANSFORMED[how](jax.jit(smooth)))


@pytest.mark.parametrize("how", NESTED)
def test_jits_nest(how: str) -> None:
    np.testing.assert_allclose(np.asarray(NESTED[how]()), np.asarray(smooth(X) + 1), rtol=1e-6)


def test_methods_are_jitted_where_they_are_defined() -> None:
    def define(jit: Jit) -> Any:
        class Layer:
            factor = 2.0

            @functools.partial(jit, static_argnums=0)
            def scaled(self, x: Any) -> Any:
                return x * self.factor

            @classmethod
            @functools.partial(jit, static_argnums=0)
            def of_class(cls, x: Any) -> Any:
                return x + cls.factor

            @staticmethod
            @jit
            def shifted(x: Any) -> Any:
                return x - 1

        return Layer()

    ours, theirs = define(jitclient.jit), define(jax.jit)
    for name in ("scaled", "of_class", "shifted"):
        same(getattr(ours, name)(X), getattr(theirs, name)(X))


def test_one_trace_for_each_kind_of_arguments(counts: Callable[..., Any]) -> None:
    jitted = jitclient.jit(lambda x, n: x * n - 7, static_argnums=1)
    calls = [(X, 2), (X + 1, 2), (X, 3), (X[:2], 2), (X.astype(int), 2), (X, 2), (2.0, 2), (np.float32(2), 2), (X, 2.0)]
    before = counts()
    for args in calls:
        jitted(*args)
    after = counts()
    assert after["traces"] - before["traces"] == 7
    assert after["calls"] - before["calls"] == len(calls)


def test_plain_python_runs_where_jit_is_disabled() -> None:
    seen = []

    @jitclient.jit
    def watched(x: Any) -> Any:
        seen.append(x)
        return x + 1 if x > 0 else x

    with jax.disable_jit():
        watched(np.float32(1))
        watched(np.float32(-1))
    assert [float(x) for x in seen] == [1, -1]
