"""Trees whose static data was made inside a jitted function, by user code and by libraries."""

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from flax import nnx
from flax.training.train_state import TrainState

WARM = [
    "case_state_as_argument",
    "case_state_there_and_back",
    "case_state_made_inside",
    "case_state_made_inside_goes_on_in_another_function",
    "case_state_made_inside_goes_on_here",
    "case_two_results_are_one_tree",
    "case_an_optimizer_made_inside",
    "case_graph_definition_as_result",
    "case_graph_definition_as_argument_and_result",
    "case_equinox_module_made_inside",
    "case_equinox_network_made_inside",
    "case_distribution_made_inside",
    "case_named_tuple_and_dataclasses",
    "case_a_class_of_the_function_as_metadata",
    "case_functions_made_inside",
    "case_a_bound_method_made_inside",
    "case_an_instance_made_inside",
    "case_a_partial_made_inside",
    "case_one_function_in_two_places",
    "case_a_function_that_calls_itself",
    "case_a_wrapped_function_made_inside",
    "case_a_jitted_function_made_inside",
    "case_values_of_many_kinds_made_inside",
    "case_what_is_captured_is_the_same_in_results",
    "case_a_variable_that_is_shared_with_a_result",
    "case_a_list_made_inside_is_one_list",
    "case_results_that_meet_a_local_jit",
]
X = jnp.linspace(-1.0, 1.0, 8).reshape(4, 2)
Y = X.sum(axis=1, keepdims=True)


class Net(nn.Module):
    width: int = 3
    activation: Any = nn.tanh

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(self.activation(nn.Dense(self.width)(x)))


def _state(tx=None):
    net = Net()
    return TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), X), tx=tx or optax.adam(1e-2))


def _loss(state, params):
    return jnp.mean((state.apply_fn(params, X) - Y) ** 2)


def _step(state):
    loss, grads = jax.value_and_grad(lambda params: _loss(state, params))(state.params)
    return state.apply_gradients(grads=grads), loss


def _shown(state):
    return jax.tree.leaves(state), float(_loss(state, state.params))


def case_state_as_argument(jit):
    return jit(lambda state: _loss(state, state.params))(_state())


def case_state_there_and_back(jit):
    step, state = jit(_step), _state()
    for _ in range(3):
        state, _ = step(state)
    return _shown(state)


def _make_train(rate, steps):
    def schedule(count):
        return rate * (1.0 - count / steps)

    def train(key):
        net = Net(width=4, activation=jnp.sin)
        tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(learning_rate=schedule, eps=1e-5))
        state = TrainState.create(apply_fn=net.apply, params=net.init(key, X), tx=tx)
        return jax.lax.scan(lambda state, _: _step(state), state, None, steps)

    return train


def case_state_made_inside(jit):
    state, losses = jit(_make_train(1e-2, 4))(jax.random.key(1))
    return _shown(state), losses


def case_state_made_inside_goes_on_in_another_function(jit):
    state, _ = jit(_make_train(1e-2, 3))(jax.random.key(1))
    state, loss = jit(_step)(state)
    return _shown(state), loss


def case_state_made_inside_goes_on_here(jit):
    state, _ = jit(_make_train(1e-2, 3))(jax.random.key(1))
    state = jax.tree.map(jnp.asarray, state)
    state, loss = jax.jit(_step)(state)
    return _shown(state), loss


def case_two_results_are_one_tree(jit):
    train = jit(_make_train(1e-2, 2))
    one, other = train(jax.random.key(1))[0], train(jax.random.key(2))[0]
    return jax.tree.leaves(jax.tree.map(lambda a, b: a + b, one, other))


def case_an_optimizer_made_inside(jit):
    def make(x):
        schedule = optax.linear_schedule(0.1, 0.0, 10)
        tx = optax.chain(optax.scale_by_adam(), optax.scale_by_schedule(schedule), optax.scale(-1.0))
        return jax.tree_util.Partial(tx.update), tx.init(x)

    update, state = jit(make)(X)
    return jax.tree.leaves(update(X, state))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.inner = nnx.Linear(2, 3, rngs=rngs)
        self.outer = nnx.Linear(3, 1, rngs=rngs)

    def __call__(self, x):
        return self.outer(nnx.relu(self.inner(x)))


def case_graph_definition_as_result(jit):
    graph, state = jit(lambda key: nnx.split(Model(nnx.Rngs(key))))(jax.random.key(0))
    return nnx.merge(graph, state)(X)


def case_graph_definition_as_argument_and_result(jit):
    def step(graph, state):
        model = nnx.merge(graph, state)
        model.inner.kernel[...] = model.inner.kernel[...] * 2.0
        return nnx.split(model)

    graph, state = nnx.split(Model(nnx.Rngs(0)))
    step = jit(step)
    for _ in range(2):
        graph, state = step(graph, state)
    return nnx.merge(graph, state)(X)


class Block(eqx.Module):
    inner: eqx.nn.Linear
    activation: Any
    name: str = eqx.field(static=True)

    def __init__(self, key, name):
        self.inner = eqx.nn.Linear(2, 3, key=key)
        self.activation = jax.nn.relu
        self.name = name

    def __call__(self, x):
        return self.activation(self.inner(x))


def case_equinox_module_made_inside(jit):
    def make(key):
        return eqx.filter(Block(key, "first"), eqx.is_array)

    made = jit(make)(jax.random.key(0))
    return made.inner.weight, made.name


def case_equinox_network_made_inside(jit):
    def make(key):
        arrays, _ = eqx.partition(eqx.nn.MLP(2, 1, 4, 2, key=key), eqx.is_array)
        return arrays

    arrays = jit(make)(jax.random.key(0))
    return jax.tree.leaves(arrays)


def case_distribution_made_inside(jit):
    def make(loc):
        return dist.TransformedDistribution(dist.Normal(loc, 2.0), dist.transforms.ExpTransform())

    return jit(make)(0.5).log_prob(1.5)


class Pair(NamedTuple):
    first: Any
    second: Any


@flax.struct.dataclass
class Held:
    value: Any
    how: Any = flax.struct.field(pytree_node=False)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Kept:
    value: Any
    how: Any = dataclasses.field(metadata={"static": True})


def case_named_tuple_and_dataclasses(jit):
    def make(x):
        return Pair(Held(x * 2.0, jnp.sin), Kept(x + 1.0, "as it is"))

    pair = jit(make)(1.5)
    return pair.first.how(pair.first.value), pair.second.value, pair.second.how


def case_a_class_of_the_function_as_metadata(jit):
    def make(x):
        class Local:
            factor = 3.0

        return Held(x, Pair)

    made = jit(make)(1.0)
    return made.how(made.value, 2.0)


def case_functions_made_inside(jit):
    def make(x):
        def times(y, factor=4.0):
            return y * factor + offset

        offset = 2.0
        return Held(x, times), Held(x, lambda y: times(y) - 1.0), Held(x, max)

    one, other, third = jit(make)(1.5)
    return one.how(one.value), other.how(other.value), third.how(3.0, 4.0)


def case_a_bound_method_made_inside(jit):
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        def times(self, x):
            return x * self.factor

    made = jit(lambda x: Held(x, Scale(3.0).times))(2.0)
    return made.how(made.value)


def case_an_instance_made_inside(jit):
    class Settings:
        def __init__(self, **names):
            self.__dict__.update(names)

    made = jit(lambda x: Held(x, Settings(a=1, b=[2, 3], c={"d": x.shape})))(jnp.ones(3))
    return made.how.a, made.how.b, made.how.c["d"]


def case_a_partial_made_inside(jit):
    made = jit(lambda x: Held(x, functools.partial(jnp.add, 2.0)))(2.0)
    return made.how(made.value)


def case_one_function_in_two_places(jit):
    def make(x):
        kept = []

        def note(y):
            kept.append(y)
            return len(kept)

        return Held(x, note), Held(x + 1.0, note)

    one, other = jit(make)(1.0)
    return one.how(0), other.how(0), one.how is other.how


def case_a_function_that_calls_itself(jit):
    def make(x):
        def factorial(n):
            return 1 if n < 2 else n * factorial(n - 1)

        return Held(x, factorial)

    return jit(make)(1.0).how(5)


def case_a_wrapped_function_made_inside(jit):
    def make(x):
        @functools.wraps(jnp.sin)
        def wrapper(y, *, factor=2.0):
            return factor * jnp.sin(y)

        return Held(x, wrapper)

    made = jit(make)(1.0)
    return made.how(made.value), made.how(made.value, factor=3.0), made.how.__name__


def case_a_jitted_function_made_inside(jit):
    made = jit(lambda x: Held(x, jax.jit(lambda y, n: y * n, static_argnums=1)))(2.0)
    return made.how(made.value, 3)


def case_values_of_many_kinds_made_inside(jit):
    def make(x):
        kinds = (1 + 2j, slice(1, None, 2), range(3), np.float32(0.5), np.dtype("bfloat16"), jnp.int8, ..., None, b"x")
        return Held(x, kinds), Held(x, (np.arange(3), {"a": [1, 2]}, collections.OrderedDict(b=1, a=2)))

    one, other = jit(make)(1.0)
    numbers, *rest = other.how
    return repr(one.how), numbers, repr(rest)


CONFIG = {"factor": 2.0, "names": ["a", "b"]}
TABLE = jnp.arange(3.0)


def case_what_is_captured_is_the_same_in_results(jit):
    offset = [1.0]

    def make(x):
        def shifted(y):
            return y * CONFIG["factor"] + offset[0] + TABLE[1]

        return Held(x, shifted), Held(x, CONFIG), Held(x, functools.partial(max, CONFIG["names"]))

    one, other, third = jit(make)(1.0)
    before = one.how(3.0)
    CONFIG["factor"], offset[0] = 3.0, 2.0
    after = one.how(3.0)
    CONFIG["factor"] = 2.0
    return before, after, other.how is CONFIG, third.how.args[0] is CONFIG["names"]


def case_a_variable_that_is_shared_with_a_result(jit):
    factor = 2.0

    def make(x):
        return Held(x, lambda y: y * factor)

    made = jit(make)(1.0)
    before, factor = made.how(3.0), 5.0
    return before, made.how(3.0)


def case_a_list_made_inside_is_one_list(jit):
    make = jit(lambda x: (Held(x, [1, 2]), Held(x, CONFIG["names"])))
    one, other = make(1.0), make(2.0)
    return one[0].how is other[0].how, one[0].how == [1, 2], one[1].how is CONFIG["names"]


def case_a_leaked_value_made_inside_raises_(jit):
    return jit(lambda x: Held(x, lambda y: x * y))(1.0).how(2.0)


def case_vjp_as_result(jit):
    def forward(x):
        y, back = jax.vjp(lambda x: jnp.sin(x) * x, x)
        return y, back

    y, back = jit(forward)(X)
    return y, jit(lambda back, y: back(y))(back, y)


def case_vjp_called_here(jit):
    y, back = jit(lambda x: jax.vjp(lambda x: jnp.sin(x) * x, x))(X)
    return y, back(y)


def case_linearize_as_result(jit):
    y, forward = jit(lambda x: jax.linearize(jnp.sin, x))(X)
    return y, jit(lambda forward, y: forward(y))(forward, y)


def case_results_that_meet_a_local_jit(jit):
    train = jit(_make_train(1e-2, 2))
    traced = []

    @jax.jit
    def look(state):
        traced.append(1)
        return state.step

    for key in (1, 2):
        state, _ = train(jax.random.key(key))
        look(jax.tree.map(jnp.asarray, state))
    return len(traced)
