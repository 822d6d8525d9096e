"""The order in which code iterates over sets, which differs between processes."""

import jax.numpy as jnp

KEYS = {"loc", "scale", "shape", "rate", "df"}
NUMBERS = {3, 1, 2}

ARGUMENT = {name: jnp.float32(number) for number, name in enumerate(sorted(KEYS))}

WARM = ["case_only_sorted", "case_only_membership", "case_set_of_small_integers"]


def case_only_sorted(jit):
    return jit(lambda d: tuple(d[k] * 1 for k in sorted(KEYS)))(ARGUMENT)


def case_only_membership(jit):
    return jit(lambda d: {k: v * 2 if k in KEYS else v for k, v in d.items()})(ARGUMENT)


def case_set_of_small_integers(jit):
    return jit(lambda x: [x * n for n in sorted(NUMBERS)])(2.0)
