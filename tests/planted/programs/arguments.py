"""Specialisations of jit: static and donated arguments, keywords, dtypes, weak types, shapes, settings of jax."""

import functools

import helpers
import jax
import jax.numpy as jnp
import numpy as np

X = np.arange(4, dtype=np.float32)


def case_static_arguments(jit):
    f = jit(lambda x, n, mode: x * n + len(mode), static_argnums=(1, 2))
    values = [f(X, 2, "a"), f(X, 3, "a"), f(X, 2, "abc"), f(X, 2.0, "a"), f(X, True, "a"), f(X, 1, "a")]
    return values, f(X, -1, helpers.Colour.__name__)


def case_static_names(jit):
    def f(x, *, axis=0, kind="sum"):
        return getattr(jnp, kind)(x, axis=axis)

    g = jit(f, static_argnames=("axis", "kind"))
    square = X.reshape(2, 2)
    return g(square), g(square, axis=1), g(square, kind="max"), g(square, axis=None, kind="prod")


def case_static_objects(jit):
    f = jit(lambda x, c: x + (1 if c is helpers.Colour.RED else 2), static_argnums=1)
    g = jit(lambda x, function: function(x), static_argnums=1)
    return f(X, helpers.Colour.RED), f(X, helpers.Colour.BLUE), g(X, helpers.up), g(X, helpers.down), g(X, jnp.exp)


def case_keywords(jit):
    f = jit(lambda a, b=2.0, **more: a - b + sum(n * v for n, v in enumerate(more.values())))
    return f(X), f(X, 1.0), f(X, b=1.0), f(b=X, a=1.0), f(X, p=1.0, q=5.0), f(X, q=5.0, p=1.0)


def case_variadic(jit):
    f = jit(lambda *args: sum(n * a for n, a in enumerate(args, 1)))
    return f(X), f(X, 1.0), f(1.0, X), f(X, X, 3)


def case_donated(jit):
    step = jit(lambda s, g: (s[0] - g, s[1] + 1), donate_argnums=0)
    state = (jnp.arange(4.0), jnp.int32(0))
    for _ in range(3):
        state = step(state, X)
    return state, jit(lambda x, y: x + y, donate_argnames="x")(jnp.ones(4), y=2.0)


def case_dtypes(jit):
    f = jit(lambda x: x * 2 + 1)
    kinds = ("int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64", "bool")
    return [f(jnp.ones(2, kind)) for kind in kinds], f(np.float32(1)), f(np.int16(1))


def case_weak_types(jit):
    f = jit(lambda x, y: x + y)
    half = jnp.ones(2, "bfloat16")
    return f(half, 0.1), f(half, np.float32(0.1)), f(half, jnp.float32(0.1)), f(1, 2), f(1.0, 2), f(True, 2)


def case_shapes(jit):
    f = jit(lambda x: x.sum() * x.ndim + x.size)
    return [f(np.ones(shape, np.float32)) for shape in ((), (1,), (2, 3), (3, 2), (0,), (1, 0, 2))]


def case_python_scalars(jit):
    f = jit(lambda x: (x, x * x))
    return [f(value) for value in (3, 3.0, True, 3j, np.float64(3), np.int64(3), -1, 2**31 - 1)]


def case_x64(jit):
    def f(x):
        return x / 3 + jnp.arange(2).astype(float).sum()

    def constants():
        return jnp.arange(3) / 3

    narrow = jit(f)(np.float64(1.0)), jit(constants)()
    with jax.enable_x64(True):
        wide = jit(f)(np.float64(1.0)), jit(constants)()
        number = jit(lambda n: n + 1)(2**40)
    return narrow, wide, number, jit(f)(np.float64(1.0))


def case_settings_of_jax(jit):
    def f(x):
        return x.T @ x

    def g(x, n):
        return x + n

    square = X.reshape(2, 2) / 3
    plain = jit(f)(square)
    with jax.default_matmul_precision("highest"):
        highest = jit(f)(square)
    with jax.numpy_dtype_promotion("strict"):
        strict = jit(g)(X, 1.0)
    return plain, highest, strict, jit(g)(X, np.int32(1))


def _drawn():
    return jax.random.uniform(jax.random.key(1), (2,))


def case_random_keys(jit):
    draw = jit(lambda key: jax.random.normal(key, (3,)))
    old, new = jax.random.PRNGKey(3), jax.random.key(3)
    split = jit(jax.random.split, static_argnums=1)(new, 3)
    made = [jit(lambda: _drawn())()]  # for one function, jax.jit does not heed that setting again
    with jax.default_prng_impl("rbg"):
        made.append(jit(lambda: _drawn())())
    return draw(old), draw(new), draw(jax.random.key(4)), split, draw(split[1]), made


def case_inline_and_options(jit):
    f = jit(functools.partial(jnp.multiply, 3.0), inline=True)
    g = jit(lambda a, b, c: a + 0 * c if b is None else a * b, keep_unused=True)
    return f(X), g(X, None, 1.0), g(X, 2.0, 1.0)


def case_calls_again(jit):
    f = jit(lambda x, n: x * n)
    return [f(X, n) for n in range(3)], [f(X + n, 2.0) for n in range(3)], f(jnp.arange(3), 2)


def case_ahead_of_time(jit):
    lowered = jit(lambda x: x * 2 + 1).lower(X)
    return lowered.compile()(X), jit(lambda x: {"a": x}).eval_shape(X)["a"].shape
