"""Describers for lists, dictionaries and sets: made empty, and filled when their items exist."""

from typing import Any

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import ATOMS, is_plain
from jitclient.capture.describe.namespaces import namespace_of, whole
from jitclient.capture.graph.nodes import Node, Value
from jitclient.capture.graph.walker import Walker, describes, describes_as


@describes_as("list", list)
def _list(walker: Walker, node: Node, items: list[Any]) -> None:
    if items:
        node.fill("extend", [walker.value(item) for item in items])


@describes(dict)
def _names_or_dict(walker: Walker, mapping: dict[Any, Any]) -> Value:
    if "__builtins__" not in mapping and id(mapping) not in walker.namespaces:
        return _dict(walker, mapping)
    node = Node("names", mapping, [namespace_of(walker, mapping)])
    node.needs.append((whole(walker, mapping), True))
    return node


@describes_as("dict")
def _dict(walker: Walker, node: Node, mapping: dict[Any, Any]) -> None:
    if id(mapping) in walker.keyed_by_address:
        node.fill("update", [[_by_address(walker, key), walker.value(item)] for key, item in mapping.items()])
    elif mapping:
        has_atoms = ATOMS.issuperset(map(type, mapping)) and ATOMS.issuperset(map(type, mapping.values()))
        node.fill("update", dict(mapping) if has_atoms else walker.pairs(mapping))


_LOWEST = 2**32  # lower bound of the addresses that `id` returns


def _by_address(walker: Walker, key: Any) -> Value:
    if type(key) is tuple:
        return tuple([_by_address(walker, part) for part in key])
    return walker.address(key) if type(key) is int and key > _LOWEST else walker.value(key)


@describes_as("set", set)
def _set(walker: Walker, node: Node, items: set[Any]) -> None:
    if items:
        node.fill("add", _in_canonical_order(walker, node, items))


@describes_as("frozenset", frozenset)
def _frozenset(walker: Walker, node: Node, items: frozenset[Any]) -> None:
    node.args = [_in_canonical_order(walker, node, items)]


def _in_canonical_order(walker: Walker, node: Node, items: Any) -> list[Value]:
    """Return a set's values in canonical order; those that are not plain come last and are ordered after the walk."""
    in_order = sorted((walker.value(item) for item in items if is_plain(item)), key=to_bytes)
    others = [walker.value(item) for item in items if not is_plain(item)]
    if others:
        walker.unordered.append(node)
    return in_order + others


@describes(bytearray)
def _bytearray(walker: Walker, data: bytearray) -> Value:
    return Node("bytearray", data, [bytes(data)])
