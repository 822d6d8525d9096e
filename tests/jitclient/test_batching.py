"""`auto_vmap` batches what has the batch's length in front, and is an ordinary function to jit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

BATCH = 4


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Problem:
    start: jax.Array
    scale: jax.Array
    key: jax.Array
    solver: Callable[[Any], Any] = dataclasses.field(metadata={"static": True})


def solve(problem):
    return problem.solver(problem.start) * problem.scale + jax.random.normal(problem.key, problem.start.shape)


@pytest.fixture
def problem():
    return Problem(jnp.arange(BATCH * 3.0).reshape(BATCH, 3), jnp.array([1.0, 2.0, 3.0]), jax.random.key(0), jnp.sin)


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("split_keys", [False, True])
def test_it_is_vmap_with_the_axes_that_one_would_write(problem, split_keys):
    solve_all = jitclient.auto_vmap(solve, problem, BATCH, split_keys=split_keys)
    axes = Problem(0, None, 0 if split_keys else None, problem.solver)
    keys = jax.random.split(problem.key, BATCH) if split_keys else problem.key
    expected = jax.jit(jax.vmap(solve, in_axes=(axes,)))(dataclasses.replace(problem, key=keys))
    found = jitclient.jit(solve_all)(problem)
    assert np.array_equal(found, expected)
    assert np.array_equal(jax.jit(solve_all)(problem), expected)


def test_a_batch_of_keys_is_batched_as_it_is(problem):
    keys = jax.random.split(problem.key, BATCH)
    problem = dataclasses.replace(problem, key=keys)
    found = jitclient.auto_vmap(solve, problem, BATCH, split_keys=True)(problem)
    axes = Problem(0, None, 0, problem.solver)
    assert np.array_equal(found, jax.vmap(solve, in_axes=(axes,))(problem))


def test_leaves_that_are_no_arrays_are_handed_on():
    def total(problem):
        return problem["how"](problem["x"]) if problem["name"] == "sum" else None

    problem = {"x": jnp.ones((BATCH, 3)), "how": jnp.sum, "name": "sum"}
    assert jitclient.auto_vmap(total, problem, BATCH)(problem).tolist() == [3.0] * BATCH


def test_it_is_found_again_by_its_capture(problem):
    keys = [jitclient.function_key(jitclient.auto_vmap(solve, problem, size)) for size in (BATCH, BATCH)]
    assert keys[0] == keys[1]


def test_nothing_to_batch_is_an_error(problem):
    with pytest.raises(ValueError, match="leading axis of length 5"):
        jitclient.auto_vmap(solve, problem, 5)


def test_another_structure_is_an_error(problem):
    with pytest.raises(ValueError, match="structure of the argument differs"):
        jitclient.auto_vmap(solve, problem, BATCH)({"x": problem.start})
