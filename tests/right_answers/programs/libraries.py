"""Libraries that keep what is open in their modules, or what their objects are made of in objects of their own."""

from typing import Union

import e3nn_jax as e3nn
import haiku as hk
import jax
import jax.numpy as jnp
from absl import flags

WARM = [
    "case_irreps_as_static_data",
    "case_irreps_made_inside",
    "case_haiku_network",
    "case_haiku_network_of_a_type_that_names_itself",
    "case_haiku_state",
    "case_flags_of_absl",
]
X = jnp.linspace(-1.0, 1.0, 8).reshape(2, 4)
RATE = flags.DEFINE_float("right_answers_rate", 0.5, "how fast")
flags.FLAGS(["program", "--right_answers_rate=0.25"])
IRREPS = e3nn.Irreps("1x0e + 1x1o")


def case_irreps_as_static_data(jit):
    norms = jit(lambda x: e3nn.norm(e3nn.IrrepsArray(IRREPS, x)).array * IRREPS.dim)
    return norms(X)


def case_irreps_made_inside(jit):
    made = jit(lambda x: e3nn.IrrepsArray("1x0e + 1x1o", x) * 2.0)(X)
    again = jit(lambda made: e3nn.norm(made).array)(made)
    return made.array, str(made.irreps), again


def network(x):
    return hk.nets.MLP([3, 1])(x)


def case_haiku_network(jit):
    made = hk.without_apply_rng(hk.transform(network))
    params = jit(made.init)(jax.random.key(0), X)
    return jit(jax.value_and_grad(lambda params, x: made.apply(params, x).sum()))(params, X)


Tree = Union[jax.Array, "list[Tree]"]


def of_trees(tree: Tree) -> Tree:
    return [hk.Linear(2)(leaf) for leaf in tree]


def case_haiku_network_of_a_type_that_names_itself(jit):
    made = hk.without_apply_rng(hk.transform(of_trees))
    params = made.init(jax.random.key(0), [X, X])
    return jit(lambda params: made.apply(params, [X, X + 1]))(params)


def counting(x):
    calls = hk.get_state("calls", (), init=jnp.zeros)
    hk.set_state("calls", calls + 1)
    return x * (calls + 1)


def case_haiku_state(jit):
    made = hk.transform_with_state(counting)
    params, state = jit(made.init)(jax.random.key(0), X)
    step = jit(made.apply)
    first, state = step(params, state, None, X)
    return first, *step(params, state, None, X)


def case_flags_of_absl(jit):
    return jit(lambda x: x * flags.FLAGS.right_answers_rate)(X), jit(lambda x: x - RATE.value)(X)
