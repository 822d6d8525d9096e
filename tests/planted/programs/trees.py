"""Arguments and results in trees: classes of all kinds, static data, none, empty and deep ones, orders of keys."""

import collections
import dataclasses
from typing import Any, NamedTuple

import helpers
import jax
import jax.numpy as jnp
import numpy as np

X = np.arange(3, dtype=np.float32)


@jax.tree_util.register_pytree_node_class
class Registered:
    def __init__(self, value, name):
        self.value, self.name = value, name

    def tree_flatten(self):
        return (self.value,), self.name

    @classmethod
    def tree_unflatten(cls, name, children):
        return cls(*children, name)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Data:
    weight: Any
    bias: Any
    kind: str = dataclasses.field(metadata={"static": True}, default="plain")


class Point(NamedTuple):
    x: Any
    y: Any = 1.0


class Swapped:
    """Its children come in another order than its attributes."""

    def __init__(self, first, second):
        self.first, self.second = first, second


jax.tree_util.register_pytree_with_keys(
    Swapped,
    lambda s: (((jax.tree_util.GetAttrKey("second"), s.second), (jax.tree_util.GetAttrKey("first"), s.first)), None),
    lambda _, children: Swapped(children[1], children[0]),
)


@dataclasses.dataclass(frozen=True)
class Label:
    """A user's object that trees have as static data."""

    text: str
    level: int = 0


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Mode:
    fast: bool


def case_registered_class(jit):
    def f(r):
        return Registered(r.value * (2 if r.name == "a" else 3), r.name + "!")

    got = [jit(f)(Registered(X, name)) for name in ("a", "b")]
    return [(type(r).__name__, r.value, r.name) for r in got]


def case_registered_dataclass(jit):
    def f(d):
        return Data(d.weight + 1, d.bias * 2, kind=d.kind + "er")

    got = [jit(f)(Data(X, 2.0, kind)) for kind in ("plain", "odd")]
    return [(type(d).__name__, d.weight, d.bias, d.kind) for d in got]


def case_named_tuples(jit):
    def f(p):
        return Point(p.y, p.x), collections.namedtuple("Other", "u v")(p.x, 2.0)

    point, other = jit(f)(Point(X, 5))
    return type(point).__name__, point.x, point.y, type(other).__name__, other._fields, other.u, other.v


def case_children_in_another_order(jit):
    got = jit(lambda s: Swapped(s.first * 10, s.second * 100))(Swapped(1.0, X))
    return got.first, got.second


def case_static_nodes(jit):
    f = jit(lambda mode, x: (mode, x * 2 if mode.fast else x * 3))
    return [(mode, type(mode).__name__, value) for mode, value in (f(Mode(True), X), f(Mode(False), X))]


def case_static_data_of_many_kinds(jit):
    kinds = ["text", 3, 2.5, helpers.Colour.RED, helpers.Level.HIGH, Label("a", 2), b"raw", frozenset({1})]

    def f(x):
        return [Registered(x + n, kind) for n, kind in enumerate(kinds)]

    return [(r.name, type(r.name).__name__, r.value) for r in jit(f)(X)]


def case_static_data_that_is_a_tuple(jit):
    got = [jit(lambda r: Registered(r.value + 1, r.name))(Registered(X, name)) for name in ((1, 2), (1, ("two", None)))]
    return [(r.name, r.value) for r in got]


def case_static_data_made_inside(jit):
    def f(x):
        name = "-".join(["made", str(x.shape[0]), str(x.dtype)])
        return Registered(x, Label(name, x.ndim)), Registered(x, {"axis": (0, x.size)}), Registered(x, helpers.up)

    label, plain, function = jit(f)(X)
    return label.name, plain.name, function.name is helpers.up, function.name(X), label.value


def case_static_functions_as_metadata(jit):
    def f(r):
        return r.name(r.value)

    return jit(f)(Registered(X, helpers.up)), jit(f)(Registered(X, helpers.down)), jit(f)(Registered(X, jnp.sin))


def case_none_leaves(jit):
    f = jit(lambda tree: {"n": None, "v": tree["v"] + (1 if tree["n"] is None else tree["n"]), "t": (None, [None])})
    return f({"n": None, "v": X}), f({"n": 3.0, "v": X})


def case_empty_trees(jit):
    f = jit(lambda a, b, c: (a, b, c, (), [], {}, X.sum() + len(a) + len(b)))
    return f((), [], {}), f([], {}, ()), jit(lambda: ())(), jit(lambda: None)()


def case_order_of_keys(jit):
    def f(d):
        return {"z": d["b"], "a": d["a"] * 2, "m": {"2": d["a"], "10": d["b"]}}

    first, second = jit(f)({"b": X, "a": 1.0}), jit(f)({"a": 1.0, "b": X})
    return list(first), list(second), list(first["m"]), first, second


def case_ordered_and_default_dicts(jit):
    def f(o, d):
        return collections.OrderedDict((k, v * n) for n, (k, v) in enumerate(o.items(), 2)), d["x"] + 1

    got, other = jit(f)(collections.OrderedDict(z=X, a=1.0), collections.defaultdict(list, x=X))
    back, _ = jit(f)(collections.OrderedDict(a=1.0, z=X), collections.defaultdict(list, x=X))
    return type(got).__name__, list(got.items()), list(back.items()), other


def case_keys_that_are_numbers(jit):
    got = jit(lambda d: {10: d[2], 2: d[10], -1: d[2] + d[10]})({10: 1.0, 2: X})
    return list(got.items()), jit(lambda d: d[(0, 1)] - d[(0, 0)])({(0, 1): X, (0, 0): 1.0})


def case_deep_trees(jit):
    tree = X
    for depth in range(40):
        tree = [tree] if depth % 3 else {"k": (tree, depth * 1.0)}
    got = jit(lambda t: jax.tree.map(lambda leaf: leaf + 1, t))(tree)
    return str(jax.tree.structure(got)), jax.tree.leaves(got)


def case_wide_trees(jit):
    tree = {f"layer{n}": {"w": X + n, "b": np.int32(n)} for n in range(25)}
    got = jit(lambda t: {k: {"b": v["w"].sum(), "w": v["b"] * 2} for k, v in t.items()})(tree)
    return sorted(got), [got[k] for k in tree]


def case_lists_and_tuples_differ(jit):
    f = jit(lambda t: (type(t).__name__, 1.0)[1] * t[0] + (10 if isinstance(t, list) else 20) + len(t))
    return f([X]), f((X,)), f([X, 1.0]), f((X, 1.0))


def case_one_array_in_two_places(jit):
    x = jnp.arange(3.0)
    a, b = jit(lambda p, q: (p + q, p))(x, x)
    c, d = jit(lambda p: (p, p))(x)
    return a, b, c, d


def case_results_go_on(jit):
    step = jit(lambda r, n: Registered(r.value * 2 + n, r.name))
    state = Registered(X, Label("state"))
    for n in range(4):
        state = step(state, n)
    return state.name, state.value, jax.tree.map(lambda leaf: leaf - 1, state).value, float(state.value[1])


def case_constants_as_results(jit):
    return jit(lambda x: (x, 1, 2.5, True, np.int8(3), 1j, np.arange(2)))(X), jit(lambda: 7)()
