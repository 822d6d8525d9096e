"""The one file that reads JAX's own registry, and what happens where it cannot."""

import types

import jax
import pytest

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.capture.user_code.registry import is_registered, registration_of
from jitclient.errors import CaptureError


class Plain:
    pass


class Node:
    def __init__(self, w):
        self.w = w


jax.tree_util.register_pytree_node(Node, lambda n: ((n.w,), None), lambda _, c: Node(*c))


def test_registration_is_read():
    assert registration_of(Plain) is None
    assert registration_of(Node)[0] == "node"
    assert is_registered(Node)
    assert not is_registered(Plain)


@pytest.mark.parametrize("broken", [None, 5, {}])
def test_a_registry_that_does_not_tell(monkeypatch, broken):
    monkeypatch.setattr("jax._src.tree_util._registry", broken)
    assert registration_of(Plain) is None
    with pytest.raises(CaptureError, match="Node"):
        registration_of(Node)


def test_functions_that_jax_made_are_recognised():
    class Keyed:
        pass

    class Static(str):
        pass

    flatten = lambda tree: (((jax.tree_util.GetAttrKey("w"), 1),), None)
    jax.tree_util.register_pytree_with_keys(Keyed, flatten, lambda _, children: Keyed())
    jax.tree_util.register_static(Static)
    kind, (keyed, _) = registration_of(Keyed)
    assert (kind, keyed) == ("keys", flatten)
    assert registration_of(Static) == ("static", ())


def test_functions_of_a_later_jax_are_not_mistaken_for_the_users(monkeypatch):
    def flatten(tree):
        return [], None

    flatten.__module__ = "jax._src.tree_util"
    entry = types.SimpleNamespace(to_iter=flatten, from_iter=None)
    monkeypatch.setitem(jax._src.tree_util._registry, Node, entry)
    with pytest.raises(CaptureError, match="Node"):
        registration_of(Node)


def test_another_way_to_ask(monkeypatch):
    monkeypatch.setattr("jax.tree_util.default_registry", None)
    assert is_registered(Node)
    assert not is_registered(Plain)


def test_registration_is_replayed(write):
    module = write(
        um_tree="""
        import jax
        class P:
            def __init__(self, w):
                self.w = w
        jax.tree_util.register_pytree_node(P, lambda p: ((p.w,), None), lambda _, c: P(*c))
        def fn(x):
            return jax.tree.map(lambda v: v + 1, P(x)).w
        """
    )
    loaded = load(capture(module.fn, (module.P,)).payload)
    assert is_registered(loaded.extras[0])
    assert loaded.fn(1) == 2
