"""The order of a custom node's children, if processes can differ in it.

A class may flatten its attributes in the order of a set (numpyro's distributions do). So the children and metadata of
such nodes are sent sorted by attribute, and each process determines its own order by flattening an instance whose
attributes are their own names.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from jitclient.errors import CaptureError


class NodeOrder(NamedTuple):
    """The attributes that a class flattens, in the order of this process."""

    children: tuple[str, ...]
    meta: tuple[str, ...] | None
    """That of each value in the metadata, "" if none holds it; None if the metadata is no such tuple."""

    attributes: tuple[str, ...]
    """All that an instance has, sorted: the class may read any of them when it flattens one."""

    @property
    def sorted(self) -> "NodeOrder":
        """The order on the wire."""
        meta = None if self.meta is None else tuple(sorted(self.meta))
        return NodeOrder(tuple(sorted(self.children)), meta, self.attributes)

    def rearranged(self, other: "NodeOrder", meta: Any, children: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """Reorders metadata and children from this order to the other one."""
        if self.meta is not None and other.meta is not None:
            meta = _rearranged(self.meta, other.meta, meta)
        return meta, _rearranged(self.children, other.children, children)


def _rearranged(names: Sequence[str], others: Sequence[str], items: Sequence[Any]) -> tuple[Any, ...]:
    """Reorders items, named by `names`, to the order of `others`. Items with equal names keep their order."""
    left = list(zip(names, items, strict=True))
    found = []
    for other in others:
        at = next(n for n, (name, _) in enumerate(left) if name == other)
        found.append(left.pop(at)[1])
    return tuple(found)


class _Named:
    """Stands for the value of an attribute."""

    def __init__(self, name: str) -> None:
        self.name = name


def learnt(kind: Any, meta: Any, count: int) -> NodeOrder | None:
    """The order of a node's `count` children and its metadata here; None if it is the same everywhere, or unknown."""
    if issubclass(kind, tuple) or dataclasses.is_dataclass(kind):
        return None
    if count + (len(meta) if type(meta) is tuple else 0) < 2:
        return None
    children = [object() for _ in range(count)]
    try:
        attributes = vars(_unflattened(kind, meta, children))
    except Exception:  # the user's code may raise anything for such children
        return None
    order: NodeOrder | None = here(kind, frozenset(attributes))
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
def here(kind: Any, names: frozenset[str]) -> NodeOrder | None:
    """The order in which this process flattens an instance with these attributes; None if unknown."""
    try:
        blank: Any = object.__new__(kind)
        for name in names:
            object.__setattr__(blank, name, _Named(name))
        children, meta = _flattened(blank)
    except Exception:  # it computes with its attributes or has none
        return None
    if not all(type(child) is _Named for child in children):
        return None
    order, attributes = tuple(child.name for child in children), tuple(sorted(names))
    if type(meta) is not tuple or not all(item is None or type(item) is _Named for item in meta):
        return NodeOrder(order, None, attributes)
    return NodeOrder(order, tuple("" if item is None else item.name for item in meta), attributes)


@functools.lru_cache(maxsize=1024)
def of_named_tuple(kind: Any) -> NodeOrder | None:
    """How JAX flattens a named tuple that is registered as a node; None if it is not registered."""
    try:
        fields = tuple.__new__(kind, map(_Named, kind._fields))
        children, meta = _flattened(fields)
    except Exception as error:
        raise CaptureError(f"{kind.__qualname__} is a node that computes with its fields") from error
    if meta is None and [id(child) for child in children] == list(map(id, fields)):
        return None
    kept = meta if type(meta) is tuple else ()
    if len(children) + len(kept) != len(fields) or not all(type(item) is _Named for item in (*children, *kept)):
        raise CaptureError(f"{kind.__qualname__} is a node that computes with its fields")
    return NodeOrder(tuple(child.name for child in children), tuple(item.name for item in kept), kind._fields)


def named_tuple(kind: Any, order: NodeOrder, meta: Any, children: Sequence[Any]) -> Any:
    """Rebuilds a named tuple from its flattened form."""
    values = dict(zip((*order.children, *(order.meta or ())), (*children, *(meta or ())), strict=True))
    return tuple.__new__(kind, [values[field] for field in kind._fields])


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
