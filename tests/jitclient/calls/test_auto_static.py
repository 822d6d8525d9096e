"""`jit(auto_static=True)`: what is no array is static wherever it lies, and makes a program of its own."""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jitclient


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Model:
    weights: list[jax.Array]
    activation: Callable[[Any], Any]  # a leaf, as far as JAX knows
    name: str


def apply(model, x, *, scale=1.0):
    for weight in model.weights:
        x = model.activation(weight @ x)
    return {"out": x * scale, "shifted": x + (1 if model.name == "up" else -1)}


@pytest.fixture
def model():
    return Model([jnp.eye(3) * 2, jnp.ones((3, 3))], jnp.tanh, "up")


@pytest.fixture
def jitted():
    return jitclient.jit(apply, auto_static=True)


@pytest.fixture
def traces(counts):
    before = counts()["traces"]
    return lambda: counts()["traces"] - before


@pytest.mark.usefixtures("daemon")
def test_strings_functions_and_numbers_are_static(jitted, model):
    x = np.arange(3.0, dtype=np.float32)
    found = jitted(model, x, scale=2.0)
    expected = jax.jit(lambda weights, x: apply(Model(weights, jnp.tanh, "up"), x, scale=2.0))(model.weights, x)
    assert found["out"].tolist() == expected["out"].tolist()
    assert found["shifted"].tolist() == expected["shifted"].tolist()


@pytest.mark.usefixtures("daemon")
def test_there_is_one_program_for_each_set_of_static_values(jitted, model, traces):
    x = np.ones(3, np.float32)
    for _ in range(3):
        jitted(model, x)
    assert traces() == 1
    for name in ("down", "up", "down"):
        sign = 1 if name == "up" else -1
        found = np.asarray(jitted(dataclasses.replace(model, name=name), x)["shifted"])
        assert found.tolist() == [jnp.tanh(3 * jnp.tanh(2.0)) + sign] * 3
    assert traces() == 2
    for scale in (1, 1.0, True):  # equal, and of different types
        assert jitted(model, x, scale=scale)["out"].dtype == jnp.float32
    assert traces() == 5
    jitted(dataclasses.replace(model, activation=jnp.sin), x)
    assert traces() == 6


@pytest.mark.usefixtures("daemon")
def test_an_own_function_as_a_leaf_travels_by_value(jitted, model):
    found = jitted(dataclasses.replace(model, activation=lambda x: x * 3), np.ones(3, np.float32))
    assert found["out"].tolist() == [54.0] * 3


@pytest.mark.usefixtures("daemon")
def test_numbers_that_are_static_need_no_value_at_run_time():
    repeat = jitclient.jit(lambda x, times: jnp.concatenate([x] * times), auto_static=True)
    assert repeat(np.ones(2), 3).shape == (6,)


@pytest.mark.usefixtures("daemon")
def test_optimizers_and_static_argnames_go_with_it():
    @jitclient.jit(auto_static=True, static_argnames="steps")
    def train(optimizer, params, steps):
        state = optimizer.init(params)
        for _ in range(steps):
            updates, state = optimizer.update(jax.tree.map(lambda p: 2 * p, params), state, params)
            params = optax.apply_updates(params, updates)
        return params

    found = train(optax.sgd(0.25), {"w": jnp.ones(2)}, steps=2)
    assert found["w"].tolist() == [0.25, 0.25]


@pytest.mark.usefixtures("daemon")
def test_lists_and_named_tuples_without_jax(run_script):
    assert run_script(
        """
        import collections, json, sys, numpy as np, jitclient
        Pair = collections.namedtuple("Pair", "x how")

        @jitclient.jit(auto_static=True)
        def twice(pair, more):
            return pair.x * (2 if pair.how == "double" else 1) + len(more[1])

        print(json.dumps([twice(Pair(np.arange(2), "double"), [None, "abc"]).tolist(), "jax" in sys.modules]))
        """,
        env={"JITSERVER_VERIFY": "off"},  # a trace would import jax
    ) == [[3, 5], False]


def test_inside_a_trace_and_without_jit_it_is_an_ordinary_function(jitted, model):
    x = jnp.ones(3)
    expected = apply(model, x)["out"].tolist()
    assert jax.jit(lambda x: jitted(model, x)["out"])(x).tolist() == pytest.approx(expected)
    with jax.disable_jit():
        assert jitted(model, x)["out"].tolist() == expected
    assert jitted.eval_shape(model, x)["out"].shape == (3,)


@pytest.mark.usefixtures("daemon")
def test_inside_another_function_on_the_daemon(jitted, model):
    found = jitclient.jit(lambda weights, x: jitted(Model(weights, jnp.tanh, "up"), x)["shifted"])(
        model.weights, jnp.ones(3)
    )
    assert found.tolist() == jitted(model, jnp.ones(3))["shifted"].tolist()


@pytest.mark.usefixtures("daemon")
def test_explain_names_the_static_value_that_differs(jitted, model):
    x = jnp.ones(3)
    jitted(model, x)
    assert jitclient.explain(jitted, model, x).hit
    told = str(jitclient.explain(jitted, dataclasses.replace(model, name="sideways"), x))
    assert "'sideways'" in told
    assert "'up'" in told


def test_a_leaf_that_cannot_be_hashed_is_named(jitted, model):
    unhashable = collections.UserList([1])
    with pytest.raises(ValueError, match=r"apply: argument model.*name.* is not an array.*UserList cannot be hashed"):
        jitted(dataclasses.replace(model, name=unhashable), jnp.ones(3))
