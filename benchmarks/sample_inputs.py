"""Inputs for public functions of JAX whose docstrings have no example: the first of a few usual argument lists that
JAX itself takes.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.docstring_calls import Call
from benchmarks.quiet import quietly


def first_accepted(name: str, function: Callable[..., Any]) -> Iterator[Call]:
    """The call that JAX takes; none if it takes none of them."""
    for args in _candidates(is_random=name.startswith("jax.random.")):
        with contextlib.suppress(Exception), quietly():
            result = function(*args)
            if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(result)):
                yield Call(function, name, args, {})
                return


def _candidates(is_random: bool) -> Iterator[tuple[Any, ...]]:
    generator = np.random.default_rng(0)
    floats = [jnp.asarray(generator.uniform(0.1, 0.9, (3, 4)), jnp.float32) for _ in range(4)]
    numbers = [jnp.asarray(generator.integers(1, 5, (3, 4)), jnp.int32) for _ in range(4)]
    flags = [number > 2 for number in numbers]
    square = floats[0][:, :3] @ floats[0][:, :3].T + jnp.eye(3)
    if is_random:
        for key in (jax.random.key(0), jax.random.PRNGKey(0)):
            for rest in (
                (),
                ((3,),),
                (2.0,),
                (2.0, 3.0),
                (floats[0],),
                (10,),
                (3, 0.5),
                ((3,), 0, 5),
                (0.0, 1.0, 2.0),
                (jnp.ones(3), jnp.eye(3)),
            ):
                yield (key, *rest)
        yield (0,)
    for arrays in (floats, numbers, flags, [square], [x[0] for x in floats]):
        for count in range(1, len(arrays) + 1):
            yield tuple(arrays[:count])
    for x in (floats[0], numbers[0], square):
        yield from ((x, rest) for rest in (0, (0,), (1, 0), 1.0, "float32", (4, 3), (2, 3, 4)))
        yield from ((0, x), (1, x), (x, 0, 1), (x[0], x[0], 1), (0.1, x, 0.9), (x, 0.0, ((1, 1, 0),) * 2))
        yield (x, x, (((1,), (1,)), ((), ())))
    yield from (((3, 4),), (4,), (3, 4), ("float32", (3,), 0))
