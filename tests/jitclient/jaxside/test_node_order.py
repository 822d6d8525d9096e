"""Children and metadata of nodes travel in one order, whatever order this process has them in."""

import sys
from types import FunctionType, ModuleType

import jax
import jax.numpy as jnp
import pytest

from jitclient.capture.codec import values
from jitclient.errors import CaptureError
from jitclient.jaxside import node_order, tree

ARRAYS = ("width", "height", "depth")


LIBRARY = sys.modules["numpyro.tables"] = ModuleType("numpyro.tables")
LIBRARY.ARRAYS = ARRAYS


def _installed(function):
    """Return a function as a library has it."""
    return FunctionType(function.__code__, vars(LIBRARY))


@jax.tree_util.register_pytree_node_class
class Table:
    """Flattens its attributes in an order that stands for that of a set: `order` is that of another process."""

    order = ["width", "unit", "name", "height", "depth"]

    def __init__(self, **attributes):
        vars(self).update(attributes)

    @_installed
    def tree_flatten(self):
        held = {each: getattr(self, each, None) for each in self.order}
        return [held.pop(each) for each in self.order if each in ARRAYS], tuple(held.values())

    @classmethod
    def tree_unflatten(cls, meta, children):
        arrays = [each for each in cls.order if each in ARRAYS]
        rest = [each for each in cls.order if each not in ARRAYS]
        return cls(**dict(zip(arrays, children, strict=True)), **dict(zip(rest, meta, strict=True)))


@pytest.fixture(autouse=True)
def _forget():
    yield
    node_order.local_order.cache_clear()


def _in_another_process(monkeypatch, order):
    monkeypatch.setattr(Table, "order", order)
    node_order.local_order.cache_clear()


def _sent(value):
    leaves, shape = tree.flatten(value)
    structure = tree.structure_of(shape)
    message = tree.encode(structure, lambda obj: 0 if obj is Table else None)
    return tree.as_sent(leaves, tree.leaf_order(structure)), message


def _received(leaves, message):
    return tree.unflattener_of_sent(tree.decode(message, lambda index: Table))(leaves)


@pytest.mark.parametrize(
    "order", [["depth", "height", "width", "name", "unit"], ["height", "name", "width", "unit", "depth"]]
)
def test_attributes_arrive_where_they_were(monkeypatch, order):
    value = [jnp.zeros(1), Table(width=1.0, height=(2.0, {"b": 3.0, "a": 4.0}), depth=5.0, name="n", unit="m"), 6.0]
    leaves, message = _sent(value)
    _in_another_process(monkeypatch, order)
    assert _sent(value)[1] == message
    got = _received(leaves, message)[1]
    assert (got.width, got.height, got.depth) == (1.0, (2.0, {"b": 3.0, "a": 4.0}), 5.0)
    assert (got.name, got.unit) == ("n", "m")


def test_other_nodes_travel_as_they_are():
    import chex

    @chex.dataclass
    class State:
        second: float
        first: float

    for value in ({"b": 1, "a": 2}, (1, [2, None]), State(second=1.0, first=2.0), jnp.ones(2)):
        assert tree.leaf_order(tree.structure_of(tree.flatten(value)[1])) is None


def test_a_class_that_has_other_attributes_elsewhere_is_refused(monkeypatch):
    leaves, message = _sent(Table(width=1.0, height=2.0, depth=3.0, name="n", unit="m"))
    monkeypatch.setattr(Table, "tree_flatten", _installed(lambda self: ([self.width, self.height], (self.name,))))
    node_order.local_order.cache_clear()
    with pytest.raises(CaptureError, match="flattens different attributes in the client and on the daemon"):
        _received(leaves, message)


def test_what_computes_with_its_attributes_has_no_order():
    class Computed:
        def __init__(self, a, b):
            self.a, self.b = a, b

    flatten = _installed(lambda c: ((c.a + 1, c.b + 2), None))
    jax.tree_util.register_pytree_node(Computed, flatten, lambda _, c: Computed(*c))
    structure = tree.structure_of(tree.flatten(Computed(1.0, 2.0))[1])
    assert node_order.order_of_node(structure.kind, structure.meta, 2) is None
    assert len(values.read(tree.encode(structure, lambda obj: 0))) == 3, "it has no names"


def test_order_of_user_class_holds_without_own_trace(own):
    source = """
        import json, jax, jitclient

        class Pair:
            def __init__(self, first, second):
                self.first, self.second = first, second

        jax.tree_util.register_pytree_node(Pair, lambda p: ((p.second, p.first), None), lambda _, c: Pair(*c[::-1]))
        found = jitclient.jit(lambda p: Pair(p.first - p.second, p.first))(Pair(1.0, 3.0))
        print(json.dumps([float(found.first), float(found.second)]))
    """
    with own.serving():
        assert own.run(source, JITSERVER_VERIFY="off") == [-2, 1]


def test_class_that_user_flattens_is_never_built():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    jax.tree_util.register_pytree_node(Pair, lambda p: ((p.a, p.b), None), lambda _, held: pytest.fail("it was built"))
    assert tree.leaf_order(tree.structure_of(tree.flatten(Pair(1.0, 2.0))[1])) is None
