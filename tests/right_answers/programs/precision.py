"""Captured values keep the types that they were made with, whatever the settings of the daemon are."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.xla_metadata import set_xla_metadata

WARM = ["case_captured_arrays_of_64_bits", "case_weak_scalars_of_64_bits", "case_state_restored_under_the_settings"]


def case_captured_arrays_of_64_bits(jit):
    with jax.enable_x64(True):
        counts, big = jnp.asarray([2**40, 1]), jnp.asarray(1e300)
        return jit(lambda x: (counts, x * big, counts.sum() + 1))(1.0)


def case_weak_scalars_of_64_bits(jit):
    with jax.enable_x64(True):
        weak = jnp.asarray(2) * 1.5
        integer = jnp.asarray(3)
        return jit(lambda x: (x * weak, x + integer, weak, integer))(np.float32(1))


def case_array_of_64_bits_outside_of_its_block(jit):
    with jax.enable_x64(True):
        counts = jnp.asarray([2**40, 1])
    return jit(lambda x: (counts, x))(1.0)


def case_weak_arrays(jit):
    weak = jnp.full((3,), 2.0)
    scalar = jnp.asarray(3.0)
    return jit(lambda x: (x + weak, x * scalar, scalar))(jnp.ones(3, jnp.bfloat16))


class Table:
    def __init__(self, numbers):
        self.numbers = numbers

    def __getstate__(self):
        return list(self.numbers)

    def __setstate__(self, numbers):
        self.numbers = jnp.asarray(numbers)  # its type follows from the settings


def case_state_restored_under_the_settings(jit):
    with jax.enable_x64(True):
        table = Table(())
        table.__setstate__([1.0, 1e-300])
        return jit(lambda x: table.numbers * x)(2.0)


def case_solve_in_double_precision(jit):
    with jax.enable_x64(True):
        matrix = jnp.eye(3) * 3 + jnp.arange(9.0).reshape(3, 3) / 7
        return jit(lambda b: jnp.linalg.solve(matrix, b))(jnp.arange(3.0))


FACTOR = jax.make_user_context(1.0) if hasattr(jax, "make_user_context") else None


def case_values_of_a_context_of_the_users(jit):
    f = jit(lambda x: x * (FACTOR.value if FACTOR else 1.0))
    found = [f(2.0)]
    for value in (5.0, 7.0, 5.0) if FACTOR else ():
        with FACTOR(value):
            found += [f(2.0) for _ in range(3)]
    return found, f(2.0)


def case_metadata_of_the_compiler(jit):
    f = jit(lambda x: x + 1)
    found = [f(1.0)]
    with set_xla_metadata(note="mine"):
        found.append(f(1.0))
        return found, "mine" in f.lower(1.0).compile().as_text()


LOCAL = ["case_values_of_a_context_of_the_users", "case_metadata_of_the_compiler"]
