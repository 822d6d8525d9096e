"""The order of a custom pytree node's children, which may differ between processes.

A class may flatten its attributes in the order of a set, as numpyro's distributions do. So the children and metadata of
such nodes are sent sorted by attribute name. Each process determines its own order by flattening a probe instance whose
attribute values are the attributes' names.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from jitclient.capture.user_code.registry import is_flattened_by_user


class NodeOrder(NamedTuple):
    """The attributes that a class flattens, in this process's order."""

    children: tuple[str, ...]
    meta: tuple[str, ...] | None
    """The attribute that holds each value of the metadata, "" if none does; None if the metadata is no such tuple."""

    attributes: tuple[str, ...]
    """All attributes of an instance, sorted: the class may read any of them when it flattens the instance."""

    @property
    def sorted(self) -> "NodeOrder":
        """The order in which nodes are sent: children and metadata sorted by attribute name."""
        meta = None if self.meta is None else tuple(sorted(self.meta))
        return NodeOrder(tuple(sorted(self.children)), meta, self.attributes)

    def rearranged(self, other: "NodeOrder", meta: Any, children: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """Return metadata and children, given in this order, in the other order."""
        if self.meta is not None and other.meta is not None:
            meta = _rearranged(self.meta, other.meta, meta)
        return meta, _rearranged(self.children, other.children, children)


def _rearranged(names: Sequence[str], others: Sequence[str], items: Sequence[Any]) -> tuple[Any, ...]:
    """Return items, named by `names`, in the order of `others`. Items with equal names keep their relative order."""
    left = list(zip(names, items, strict=True))
    found = []
    for other in others:
        at = next(n for n, (name, _) in enumerate(left) if name == other)
        found.append(left.pop(at)[1])
    return tuple(found)


class _Named:
    """Placeholder for the value of an attribute, which stores the attribute's name."""

    def __init__(self, name: str) -> None:
        self.name = name


def order_of_node(kind: Any, meta: Any, count: int) -> NodeOrder | None:
    """Return the order of a node's `count` children and its metadata in this process.

    Return None if the order is the same in every process, or unknown, or if user code flattens the class: the capture
    then includes the order.
    """
    if issubclass(kind, tuple) or dataclasses.is_dataclass(kind) or is_flattened_by_user(kind):
        return None
    if count + (len(meta) if type(meta) is tuple else 0) < 2:
        return None
    children = [object() for _ in range(count)]
    try:
        attributes = vars(_unflattened(kind, meta, children))
    # Unflattening runs the user's code, which may raise any exception for placeholder children.
    except Exception:
        return None
    order: NodeOrder | None = local_order(kind, frozenset(attributes))
    if order is None or [id(attributes[name]) for name in order.children] != list(map(id, children)):
        return None
    if order.meta is not None and not _holds(attributes, order.meta, meta):
        return NodeOrder(order.children, None, order.attributes)
    return order


def _holds(attributes: dict[str, Any], names: tuple[str, ...], meta: Any) -> bool:
    if type(meta) is not tuple or len(meta) != len(names):
        return False
    return all(attributes.get(name) is value for name, value in zip(names, meta, strict=True))


@functools.lru_cache(maxsize=1024)
def local_order(kind: Any, names: frozenset[str]) -> NodeOrder | None:
    """Return the order in which this process flattens an instance with these attributes; None if it is unknown."""
    try:
        blank: Any = object.__new__(kind)
        for name in names:
            object.__setattr__(blank, name, _Named(name))
        children, meta = _flattened(blank)
    # The class may compute with its attributes, or have no settable ones.
    except Exception:
        return None
    if not all(type(child) is _Named for child in children):
        return None
    order, attributes = tuple(child.name for child in children), tuple(sorted(names))
    if type(meta) is not tuple or not all(item is None or type(item) is _Named for item in meta):
        return NodeOrder(order, None, attributes)
    return NodeOrder(order, tuple("" if item is None else item.name for item in meta), attributes)


def _flattened(node: Any) -> tuple[list[Any], Any]:
    from jax import tree_util

    treedef: Any
    children, treedef = tree_util.tree_flatten(node, is_leaf=lambda inner: inner is not node)
    return children, treedef.node_data()[1]


def _unflattened(kind: type, meta: Any, children: list[Any]) -> Any:
    from jax import tree_util

    leaf = tree_util.tree_structure(0)
    make: Any = tree_util.PyTreeDef.from_node_data_and_children
    return make(tree_util.default_registry, (kind, meta), [leaf] * len(children)).unflatten(children)
