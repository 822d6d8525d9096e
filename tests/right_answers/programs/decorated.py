"""Code that other tools generate around functions: what it holds of this process is no part of a key."""

import jax
import jax.numpy as jnp
from beartype import BeartypeConf, beartype
from jaxtyping import Array, Float, jaxtyped

WARM = [
    "case_a_function",
    "case_a_function_with_shapes",
    "case_both_in_another",
    "case_settings",
    "case_methods",
    "case_a_class_made_inside",
]
X = jnp.arange(3.0)


@beartype
def scaled(x: jax.Array, factor: int = 3, offset: float | None = None) -> jax.Array:
    return x * factor + (offset or 0.0)


@jaxtyped(typechecker=beartype)
def total(x: Float[Array, " n"], factor: int = 2) -> Float[Array, ""]:
    return x.sum() * factor


@beartype(conf=BeartypeConf(is_pep484_tower=True))
def lenient(x: jax.Array, factor: float = 2) -> jax.Array:
    return x * factor


@beartype
class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def run(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        return x * self.factor


def case_a_function(jit):
    return jit(scaled)(X)


def case_a_function_with_shapes(jit):
    return jit(total)(X)


def case_both_in_another(jit):
    return jit(lambda x: total(x, 4) + scaled(x, offset=1.0))(X)


def case_settings(jit):
    return jit(lenient)(X)


def case_methods(jit):
    return jit(Scale(2.0).run)(X)


def case_a_class_made_inside(jit):
    return jit(lambda x: Scale(3.0).run(x))(X)


def case_a_hint_that_does_not_hold_raises_(jit):
    return jit(lambda x: scaled(x, "three"))(X)
