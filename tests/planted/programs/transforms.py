"""Transformations, control flow, custom rules, callbacks and errors."""

import re

import helpers
import jax
import jax.numpy as jnp
import numpy as np

X = np.arange(1, 5, dtype=np.float32)


def case_grad(jit):
    def make(k):
        return lambda x: (jnp.sin(x * k) ** 2).sum()

    return jit(jax.grad(make(1.0)))(X), jit(jax.grad(make(2.0)))(X), jit(jax.value_and_grad(make(1.0)))(X)


def case_vmap(jit):
    def f(a, b):
        return a @ b

    square = X.reshape(2, 2)
    inner = [jit(jax.vmap(f, axes))(square, square) for axes in ((0, 0), (0, 1), (1, 0))]
    return inner, jax.vmap(jit(lambda x: x * 2))(square), jit(jax.jacfwd(lambda x: x**2))(X[:2])


def case_scan(jit):
    def make(gain, reverse):
        def step(carry, x):
            return carry * gain + x, carry

        return lambda xs: jax.lax.scan(step, jnp.float32(0), xs, reverse=reverse)

    return [jit(make(gain, reverse))(X) for gain, reverse in ((0.5, False), (0.25, False), (0.5, True))]


def case_while_and_fori(jit):
    def f(x):
        grown = jax.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 2), (0, x))[1]
        return jax.lax.fori_loop(0, 3, lambda i, y: y + i, grown)

    return jit(f)(X)


def case_cond_and_switch(jit):
    f = jit(lambda p, x: jax.lax.cond(p, helpers.up, helpers.down, x))
    g = jit(lambda i, x: jax.lax.switch(i, [helpers.up, jnp.sin, lambda y: y * 9], x))
    return f(True, X), f(False, X), [g(i, X) for i in range(3)]


def case_nested_jits(jit):
    inner = jax.jit(lambda x, n: x * n, static_argnums=1)
    outer = jit(lambda x: inner(x, 2) + inner(x, 3))
    ours = jit(lambda x: jit(lambda y: y + 1)(x) * 2)
    return outer(X), ours(X), jax.jit(lambda x: outer(x) + 1)(X)


def case_custom_jvp(jit):
    def make(slope):
        @jax.custom_jvp
        def f(x):
            return jnp.maximum(x, 2.0)

        f.defjvp(lambda primals, tangents: (f(*primals), slope * tangents[0]))
        return f

    def total(f):
        return lambda x: f(x).sum()

    return [jit(jax.grad(total(make(slope))))(X) for slope in (1.0, 7.0)], jit(make(1.0))(X)


def case_custom_vjp(jit):
    def make(factor):
        @jax.custom_vjp
        def f(x):
            return x * 2

        f.defvjp(lambda x: (f(x), x), lambda saved, g: (g * factor * saved,))
        return f

    def total(f):
        return lambda x: f(x).sum()

    return [jit(jax.grad(total(make(factor))))(X) for factor in (1.0, 5.0)]


def case_vjp_as_result(jit):
    value, back = jax.vjp(jit(lambda x: jnp.sin(x) * x), X)
    return value, back(np.ones(4, np.float32))[0], jax.jvp(jit(jnp.cos), (X,), (X,))


def case_checkpoint_and_remat(jit):
    block = jax.checkpoint(lambda x: jnp.tanh(x) * x)
    return jit(jax.grad(lambda x: block(block(x)).sum()))(X)


def case_pure_callback(jit):
    def make(offset):
        def host(x):
            return np.asarray(x * 2 + offset, np.float32)

        return lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    return jit(make(1.0))(X), jit(make(10.0))(X)


def case_debug_callback(jit):
    seen = []

    def make(tag):
        def f(x):
            jax.debug.callback(lambda total: seen.append((tag, float(total))), x.sum())
            jax.debug.print("total {}", x.sum())
            return x + 1

        return f

    values = jit(make("a"))(X), jit(make("b"))(X * 2)
    jax.block_until_ready(values)
    jax.effects_barrier()
    return values, seen


def case_io_callback(jit):
    rows = {}

    def store(key, value):
        rows[int(key)] = float(value)
        return np.float32(len(rows))

    def f(x):
        return jax.experimental.io_callback(store, jax.ShapeDtypeStruct((), np.float32), x[0], x[1], ordered=True)

    g = jit(f)
    return g(X), g(X * 3), sorted(rows.items())


class OwnError(Exception):
    pass


def _caught(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__, re.sub("0x[0-9a-f]+", "", str(error)).splitlines()[:1]


def case_errors_of_the_function(jit):
    def f(x, n):
        if n > 1:
            raise OwnError(f"too many: {n}")
        if x.shape[0] == 3:
            raise ValueError("of three")
        return x * n

    g = jit(f, static_argnums=1)
    calls = [(X, 1), (X, 2), (X, 3), (X[:3], 1), (X, 0)]
    return [_caught(lambda call=call: g(*call)) for call in calls]


def case_errors_of_jax(jit):
    branch = jit(lambda x: 1 if x.sum() > 0 else 2)
    shapes = jit(lambda x: x @ jnp.ones((3, 2)))
    number = jit(lambda x: float(x[0]))
    return [_caught(lambda f=f: f(X)) for f in (branch, shapes, number)], _caught(lambda: jit(lambda x: x)("text"))[0]


def case_errors_of_arguments(jit):
    f = jit(lambda x, n: x * n, static_argnums=1)
    return _caught(lambda: f(X))[0], _caught(lambda: f(X, [1]))[0], f(X, 2), _caught(lambda: f(X, 2, 3))[0]


def case_what_python_sees_of_a_trace(jit):
    def f(x):
        kind = "abstract" if isinstance(x, jax.core.Tracer) else "concrete"
        return x * len(kind) + len(str(x.dtype)) + x.ndim

    return jit(f)(X), jit(f)(X.astype(np.int32))


def case_array_methods_of_results(jit):
    y = jit(lambda x: x.reshape(2, 2) * 3)(X)
    return y + 1, y[0], y[:, 1], y.T, float(y[1, 1]), y.sum(), np.asarray(y), y.shape, str(y.dtype), [*y[0]], y @ y, -y
