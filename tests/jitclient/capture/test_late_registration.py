"""Classes that are registered with JAX only once there is an object of theirs."""

import jax
import pytest

from jitclient.capture.steps.make_values import treedef
from jitclient.capture.user_code.registry import register_late
from jitclient.jaxside import tree


def _jittable() -> type:
    """A class that registers its subclasses as distrax's does."""

    class Jittable:
        def __new__(cls, *arguments):
            return object.__new__(jax.tree_util.register_pytree_node_class(cls))

        def tree_flatten(self):
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, meta, children):
            made = object.__new__(cls)
            made.value = children[0]
            return made

    Jittable.__module__ = "distrax._src.utils.jittable"
    return type("Lazy", (Jittable,), {})


@pytest.mark.parametrize(
    "made",
    [
        lambda kind: tree.treedef_of(tree.Branch(kind, None, (tree.LEAF,))),
        lambda kind: treedef(False, (kind, None), [jax.tree.structure(0)]),
    ],
)
def test_a_tree_may_come_before_the_first_object(made):
    kind = _jittable()
    built = made(kind).unflatten([3.0])
    assert type(built) is kind
    assert built.value == 3.0


def test_of_chex():
    chex = pytest.importorskip("chex")

    # only those of a program's own file come late
    Late = chex.dataclass(type("Late", (), {"__module__": "__main__", "__annotations__": {"value": float}}))
    assert not jax.tree_util.default_registry.is_node(Late)
    register_late(Late)
    assert jax.tree_util.default_registry.is_node(Late)
    assert jax.tree.leaves(Late(value=2.0)) == [2.0]
