"""Nodes of a call as graph definitions and leaves, kept as long as only values change."""

import functools
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx


@functools.partial(jax.tree_util.register_dataclass, data_fields=["graphdef", "states"], meta_fields=[])
@dataclass(slots=True)
class NodeLeaves:
    """Node as a pytree: its static definition, and its leaves, in the groups that its shardings name."""

    graphdef: nnx.GraphDef[Any] | None
    states: tuple[Any, ...]


def is_node(value: Any) -> bool:
    """Return whether flax treats a value as a node of a graph: a module, a Variable or another object with identity."""
    known = _is_node.get(type(value))
    if known is None:
        known = isinstance(value, nnx.Variable) or nnx.graphlib.is_graph_node(value)
        if not isinstance(value, jax.core.Tracer):  # some tracers are Variables
            _is_node[type(value)] = known
    return known


_is_node: dict[type, bool] = {}


class Graph:
    """Structure of the nodes of a call.

    Holds their arrays, but no module: when a module is freed, calls `forget`.
    """

    def __init__(self, nodes: Sequence[Any], forget: Callable[[Any], Any]) -> None:
        self._forget = forget
        index = nnx.graphlib.RefMap()
        flat: list[Any] = [nnx.flatten(node, ref_index=index, graph=True) for node in nodes]
        self._graphdefs = [graphdef for graphdef, _ in flat]
        self._leaves: list[list[Any]] = [state.leaves for _, state in flat]
        self._after: list[Any] = [None] * len(nodes)
        self._modules: list[tuple[Any, list[str], list[int]]] = []
        self._containers: list[tuple[Any, list[Any], list[int]]] = []
        self._setups: list[tuple[Any, tuple[bool, bool]]] = []
        self._statics: list[tuple[Any, int]] = []
        self._held: list[Any] = []
        # flax itself handles arrays as attributes, Variables of references and the like at each call.
        self.is_simple = all(_is_simple(leaf) for each in self._leaves for leaf in each) and all(
            self._watch(value) for node in nodes for _, value in nnx.iter_graph(node, graph=True)
        )

    def leaves(self) -> list[NodeLeaves]:
        """Return the nodes as pytrees, with their current values."""
        return [
            NodeLeaves(
                graphdef, ([leaf.get_raw_value() if isinstance(leaf, nnx.Variable) else leaf for leaf in leaves],)
            )
            for graphdef, leaves in zip(self._graphdefs, self._leaves, strict=True)
        ]

    def is_current(self) -> bool:
        """Return whether flax would find the same structure now."""
        for node, keys, ids in self._modules:
            attributes = getattr(node(), "__dict__", {})
            if list(map(id, attributes.values())) != ids or list(attributes) != keys:
                return False
        return (
            all(_seen(container) == (keys, ids) for container, keys, ids in self._containers)
            and all((state.initializing, state.is_setup) == seen for state, seen in self._setups)
            and all(hash(value) == seen for value, seen in self._statics)
        )

    def update(self, made: Sequence[NodeLeaves]) -> bool:
        """Give the nodes their new values if their structure is unchanged; else do nothing.

        Returns:
            Whether the structure is unchanged.
        """
        if not self.is_simple:
            return False
        if any(one.graphdef is not after for one, after in zip(made, self._after, strict=True)):
            unchanged = [graphdef.with_same_outer_index() for graphdef in self._graphdefs]
            if [one.graphdef for one in made] != unchanged:
                return False
            self._after = [one.graphdef for one in made]
        for one, variables in zip(made, self._leaves, strict=True):
            for variable, value in zip(variables, one.states[0], strict=True):
                variable.set_raw_value(value)
        return True

    def _watch(self, value: Any) -> bool:
        """Record the state of a part of the nodes that may change. Return whether its changes can be detected."""
        kind = type(value)
        if isinstance(value, nnx.Variable):
            self._containers.append((value, *_seen(value)))
            for each in value.get_metadata().values():
                self._watch_static(each)
        elif isinstance(value, nnx.Pytree):
            attributes = vars(value)
            self._modules.append(
                (weakref.ref(value, self._forget), list(attributes), list(map(id, attributes.values())))
            )
            self._held += [each for each in attributes.values() if not isinstance(each, nnx.Pytree)]
        elif kind in (list, dict, nnx.State):
            self._containers.append((value, *_seen(value)))
        elif kind is nnx.pytreelib.PytreeState:
            self._setups.append((value, (value.initializing, value.is_setup)))
        elif not (nnx.graphlib.is_node(value) or isinstance(value, jax.Array)):
            self._watch_static(value)
        else:
            return value is None or isinstance(value, tuple)
        return True

    def _watch_static(self, value: Any) -> None:
        if type(value) not in _UNCHANGING:
            self._statics.append((value, hash(value)))


_UNCHANGING = (str, int, float, bool, complex, type(None), type, types.FunctionType, types.BuiltinFunctionType)
"""Types whose objects cannot change their hash."""


def _is_simple(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable) and not (leaf.hijax or leaf.ref)


def _seen(container: Any) -> tuple[list[Any], list[int]]:
    """Return the keys and the identities of the values in a list, a dict, a State or the metadata of a Variable."""
    kind = type(container)
    if kind is list:
        return [], list(map(id, container))
    if kind is not dict:
        container = container.raw_mapping if kind is nnx.State else container.get_metadata()
    return list(container), list(map(id, container.values()))
