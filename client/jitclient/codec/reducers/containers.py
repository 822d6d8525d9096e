"""Lists, dictionaries, sets: made empty and filled when what they hold exists."""

from typing import Any

from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.walker import Walker, describes
from jitclient.codec.pickler import to_bytes
from jitclient.codec.plain import ATOMS, is_plain
from jitclient.codec.reducers.namespaces import namespace_of, whole


@describes(list)
def _list(walker: Walker, items: list[Any]) -> Value:
    node = Node("list", items)

    def describe() -> None:
        if items:
            node.fill("extend", [walker.value(item) for item in items])

    walker.later(node, describe)
    return node


@describes(dict)
def _dict(walker: Walker, mapping: dict[Any, Any]) -> Value:
    if "__builtins__" in mapping or id(mapping) in walker.namespaces:
        node = Node("names", mapping, [namespace_of(walker, mapping)])
        node.needs.append((whole(walker, mapping), True))
        return node
    node = Node("dict", mapping)

    def describe() -> None:
        if mapping:
            node.fill("update", dict(mapping) if _holds_atoms(mapping) else walker.pairs(mapping))

    walker.later(node, describe)
    return node


def _holds_atoms(mapping: dict[Any, Any]) -> bool:
    return ATOMS.issuperset(map(type, mapping)) and ATOMS.issuperset(map(type, mapping.values()))


@describes(set)
def _set(walker: Walker, items: set[Any]) -> Value:
    node = Node("set", items)

    def describe() -> None:
        if items:
            node.fill("add", _in_canonical_order(walker, node, items))

    walker.later(node, describe)
    return node


@describes(frozenset)
def _frozenset(walker: Walker, items: frozenset[Any]) -> Value:
    node = Node("frozenset", items)

    def describe() -> None:
        node.args = [_in_canonical_order(walker, node, items)]

    walker.later(node, describe)
    return node


def _in_canonical_order(walker: Walker, node: Node, items: Any) -> list[Value]:
    """Values of a set; objects with an identity come last, put in order once all is described."""
    plain = [item for item in items if is_plain(item)]
    others = [item for item in items if not is_plain(item)]
    in_order = sorted((walker.value(item) for item in plain), key=to_bytes)
    if others:
        walker.unordered.append(node)
    return in_order + [walker.value(item) for item in others]


@describes(bytearray)
def _bytearray(walker: Walker, data: bytearray) -> Value:
    return Node("bytearray", data, [bytes(data)])
