"""Whether a captured function depends on the order of sets: by the sets it holds and the code that reads them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest

import jitclient
from jitclient.capture.codec.plain import Reduced
from jitclient.capture.dump import capture
from jitclient.capture.graph.nodes import Node
from jitclient.capture.graph.schedule import order_sets

NAMES = {"a", "b"}
NUMBERS = {1, 2, 3}
COLLIDING = set(map(int, (16, 0, 8)))  # a set display has another order once it comes from cached bytecode
TYPES = {jnp.float32, jnp.int32}
PAIRS = frozenset({("a", 1), ("b", 2)})


@dataclasses.dataclass(frozen=True)
class Config:
    tags: frozenset = frozenset({"x", "y"})


class Holder:
    names = {"a", "b"}

    def reads(self, d):
        return [d[name] for name in self.names]

    def asks(self, d):
        return [v for k, v in d.items() if k in NAMES]


def _with(value):
    return lambda d: [d for _ in value]


def _kind(fun):
    order = capture(fun).set_order
    return None if order is None else "seeded" if order.is_seeded else "process"


@pytest.mark.parametrize(
    ("fun", "kind"),
    [
        (lambda d: "a" in NAMES, None),
        (lambda d: sorted(NAMES), None),
        (lambda d: list(NUMBERS), None),
        (lambda d: [d for t in Config().tags if t == "x"], "seeded"),
        (lambda d: d, None),
        (jax.checkpoint(lambda d: d, policy=jax.checkpoint_policies.save_only_these_names("a", "b")), None),
        (lambda d: list(NAMES), "seeded"),
        (lambda d: list(PAIRS), "seeded"),
        (lambda d: list(COLLIDING), "seeded"),
        (lambda d: list(TYPES), "process"),
        (lambda d: d in TYPES, None),
        (_with({"a", "b"}), "seeded"),
        (_with([{"a", "b"}]), "seeded"),
        (_with({"one"}), None),
        (lambda d, names=frozenset({"a", "b"}): list(names), "seeded"),
        (lambda d, names=frozenset({"a", "b"}): "a" in names, None),
        (lambda d, *, names=frozenset({"a", "b"}): list(names), "seeded"),
        (functools.partial(lambda names, d: list(names), frozenset({"a", "b"})), "seeded"),
        (functools.partial(lambda config, d: d, Config()), None),
        (lambda d: list(set(d)), "process"),
        (lambda d: list({"a", "b", "c"}), "seeded"),
    ],
)
def test_what_it_depends_on(fun, kind):
    assert _kind(fun) == kind


def test_a_class_counts_with_all_its_methods():
    assert _kind(Holder().asks) == "seeded", "reads() may be called too"


def test_equal_sets_that_were_filled_in_another_order_have_another_key(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    one, other = (capture(_with(items)) for items in (set([8, 0, 16]), set([16, 8, 0])))  # noqa: C405
    assert one.key == other.key
    assert one.set_order.key != other.set_order.key


def test_without_a_seed_that_others_may_have_there_is_no_key(monkeypatch):
    order = capture(_with(NAMES)).set_order
    for seed in ("random", ""):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        assert order.key is None
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert order.key is not None


def test_explain_says_why_and_what_helps(monkeypatch, daemon):
    def observes(x):
        return [x for _ in NAMES]

    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert "sorted(...)" in str(jitclient.explain(observes, 1.0))
    assert "traced in the client: observes may depend on set iteration order" in str(jitclient.explain(observes, 1.0))
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    found = jitclient.explain(observes, 1.0)
    assert found.reason is None
    assert "sorted(...)" in found.note
    assert "sorted(...)" in str(found)


def test_installed_classes_in_a_set_have_an_order_though_their_hashes_are_addresses():
    first, second = (Reduced("installed", ("jax", name)) for name in ("Array", "Device"))

    def ordered(*items):
        node = Node("frozenset", None, [list(items)])
        order_sets([node])
        return node.args[0]

    assert ordered(first, second) == ordered(second, first)
