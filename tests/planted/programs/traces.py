"""Side effects of functions while they are traced, and their reads from outside."""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np

X = np.arange(3, dtype=np.float32)


class Counter:
    def __init__(self):
        self.count = 0


def case_a_list_that_a_trace_appends_to(jit):
    shapes = []

    def f(x):
        shapes.append(x.shape)
        return x + len(shapes)

    g = jit(f)
    return g(X), g(X), g(X[:2]), shapes


def case_an_object_that_a_trace_changes(jit):
    counter = Counter()

    def f(x):
        counter.count += 1
        return x * counter.count

    g = jit(f)
    return g(X), g(X), g(X.astype(np.int32)), counter.count


def case_environment(jit):
    values = []
    for text in ("2", "5"):
        os.environ["PLANTED_FACTOR"] = text
        values.append(jit(lambda x: x * int(os.environ["PLANTED_FACTOR"]))(X))
    return values


def case_order_of_a_set(jit):
    def f(x):
        total = x
        for name in {"alpha", "beta", "gamma"}:
            total = total + len(name)
        return total

    return jit(f)(X)


def case_warnings_of_a_trace(jit):
    def f(x):
        warnings.warn("traced", UserWarning, stacklevel=1)
        return x + 1

    return jit(f)(X)


def case_a_setting_inside(jit):
    def f(x):
        with jax.numpy_rank_promotion("allow"):
            return x + jnp.ones((2, 3))

    return jit(f)(X)
