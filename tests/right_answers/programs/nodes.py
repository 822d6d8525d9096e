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
    "case_children_in_an_order_of_the_users_own",
    "case_donated_distribution",
    "case_typed_keys_on_the_host",
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


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second

    def tree_flatten(self):
        return (self.second, self.first), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*reversed(children))


class ByFunction(Pair):
    pass


class WithKeys(Pair):
    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in ("second", "first")], None


jax.tree_util.register_pytree_node(ByFunction, lambda p: ((p.second, p.first), None), ByFunction.tree_unflatten)
jax.tree_util.register_pytree_node_class(Pair)
jax.tree_util.register_pytree_with_keys_class(WithKeys)


def case_children_in_an_order_of_the_users_own(jit):
    found = []
    for kind in (Pair, ByFunction, WithKeys):
        got = jit(lambda p, kind=kind: kind(p.first * 10, p.second + 3))(kind(1.0, 2.0))
        found.append((got.first, got.second, jit(lambda p: p.first - p.second)(kind(1.0, 2.0))))
    return found


class Scale:
    """Converts its leaf, as many constructors do, and JAX's monitoring counts what runs of it."""

    def __init__(self, scale, offset, label):
        self.scale, self.offset, self.label = jnp.asarray(scale), jnp.asarray(offset), label
        jax.monitoring.record_event("node __init__")

    def flat(self):
        jax.monitoring.record_event("node flatten")
        return (self.scale, self.offset), self.label

    @classmethod
    def build(cls, label, children):
        jax.monitoring.record_event("node unflatten")
        return cls(*children, label)

    def __eq__(self, other):
        raise TypeError("nodes have no order")

    def __hash__(self):
        jax.monitoring.record_event("node __hash__")
        return 1

    def __repr__(self):
        jax.monitoring.record_event("node __repr__")
        return "Scale"


jax.tree_util.register_pytree_node(Scale, Scale.flat, Scale.build)


def _counts(jit):
    """Values and counts of the calls of one function."""

    def moved(node, x=2.0):
        return Scale(node.scale * x, node.offset + 1, node.label)

    seen = []

    def count(event, **_):
        seen.append(event) if event.startswith("node ") else None

    jax.monitoring.register_event_listener(count)
    f = jit(moved)
    first = Scale(jnp.ones(2), 1.0, "a")
    found, values = [], []
    for call in [
        lambda: f(first),
        lambda: f(first),
        lambda: f(values[-1]),
        lambda: f(Scale(jnp.ones(3), 1.0, "a")),
        lambda: f(node=first, x=3.0),
        lambda: f(Scale(jnp.ones(2), 1.0, "b")),
        lambda: jit(moved, donate_argnums=0)(Scale(jnp.ones(2), 1.0, "a")),
        lambda: jit(lambda label, x: Scale(x, x, label), static_argnums=0)(first.label, 1.0),
    ]:
        seen.clear()
        values.append(call())
        found.append(collections.Counter(seen))
    jax.monitoring.unregister_event_listener(count)
    return found, [(float(v.scale.sum()), v.label) for v in values]


def case_no_more_of_a_node_runs_than_in_jax(jit):
    (ours, values), (plain, _) = _counts(jit), _counts(jax.jit)
    # Flattening is asked for once by plans, and once more by the general path.
    more = [
        (number, event, mine[event], there[event])
        for number, (mine, there) in enumerate(zip(ours, plain, strict=True))
        for event in mine
        if mine[event] > there[event] + (event == "node flatten")
    ]
    return more, values


def case_typed_keys_on_the_host(jit):
    state = jit(lambda: {"key": jax.random.key(0), "step": jnp.arange(3)})()
    host = jax.device_get(state)
    return type(host["key"]).__name__, host["key"], host["step"], jax.jit(lambda s: s["step"] * 2)(state)
