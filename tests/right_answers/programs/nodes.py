"""Nodes of trees whose children each process has in an order of its own, or that look like other nodes."""

import collections

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.example_libraries import optimizers

WARM = [
    "case_distribution_as_result",
    "case_distribution_as_argument",
    "case_distribution_with_shapes",
    "case_distribution_in_a_closure",
    "case_masked_distribution",
    "case_named_tuple_as_a_node_of_its_own",
    "case_donated_distribution",
]


def _parts(d):
    return d.loc, d.scale, d.batch_shape, d.event_shape


def case_distribution_as_result(jit):
    return _parts(jit(lambda x: dist.Normal(x, 1.0))(jnp.arange(3.0)))


def case_distribution_as_argument(jit):
    return jit(lambda d, x: d.loc * 10 + d.scale + d.log_prob(x))(dist.Normal(3.0, 5.0), 1.0)


def case_distribution_with_shapes(jit):
    d = dist.MultivariateNormal(jnp.zeros((2, 3)), jnp.eye(3) * jnp.arange(1.0, 4.0))
    got = jit(lambda d: dist.MultivariateNormal(d.loc + 1, scale_tril=d.scale_tril * 2))(d)
    return got.loc, got.scale_tril, got.batch_shape, got.event_shape


def case_distribution_in_a_closure(jit):
    d = dist.StudentT(4.0, jnp.arange(2.0), 3.0)
    return jit(lambda x: d.log_prob(x))(0.5)


def case_masked_distribution(jit):
    d = dist.Gamma(jnp.ones(3) * 2, 3.0).mask(jnp.array([True, False, True]))
    return jit(lambda d, x: d.log_prob(x))(d, 1.5)


def case_donated_distribution(jit):
    got = jit(lambda d: dist.Normal(d.loc * 2, d.scale * 3), donate_argnums=0)(dist.Normal(jnp.ones(3), jnp.ones(3)))
    return _parts(got)


def case_several_distributions_in_one_tree(jit):
    tree = {"a": dist.Normal(1.0, 2.0), "b": [dist.Beta(3.0, 4.0), (jnp.zeros(2), dist.Cauchy(5.0, 6.0))]}

    def f(tree):
        a, b, c = tree["a"], tree["b"][0], tree["b"][1][1]
        return {"x": dist.Normal(b.concentration1, a.scale), "y": c.loc - a.loc + b.concentration0 * c.scale}

    got = jit(f)(tree)
    return _parts(got["x"]), got["y"]


def case_tree_map_over_results(jit):
    f = jit(lambda x: dist.Normal(x, x + 1))
    both = jax.tree.map(lambda a, b: a + b, f(1.0), f(2.0))
    return _parts(both)


def case_optimizer_of_jax(jit):
    start, update, params_of = optimizers.adam(1e-2)
    state = start({"w": jnp.ones(3)})
    for step in range(3):
        state = jit(lambda i, s: update(i, {"w": jnp.ones(3)}, s))(step, state)
    return params_of(state)


class Point(collections.namedtuple("Point", ["x", "label", "y"])):
    pass


jax.tree_util.register_pytree_node(Point, lambda p: ((p.y, p.x), (p.label,)), lambda m, c: Point(c[1], m[0], c[0]))


def case_named_tuple_as_a_node_of_its_own(jit):
    got = jit(lambda p: Point(p.x * 10, p.label + "!", p.y * 100))(Point(1.0, "a", 2.0))
    return got.x, got.label, got.y
