"""The graph of a capture's contents, with one node per object that has an identity, and digests of its parts."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import COMPOUND, Numbered, Reduced, Reference, held_in
from jitclient.core.digests import digest

Value = Any
"""A plain value, a node, a `Reduced`, a tuple or list of these, or a dict of atoms."""


class Fill(NamedTuple):
    """A step that completes an object after the object was made."""

    op: str
    args: list[Value]
    label: str = ""
    optional: bool = False
    """Whether the nodes in `args` may never be needed: one that cannot be captured then fails only when it is used."""


class Node(Numbered):
    """An object to be made by `op` from `args`, which must exist, and then completed by `fills`.

    `needs` are nodes that must exist before the object is used, but that are no part of it, such as the globals that a
    function reads. Each has a flag: whether the node may fail only when it is used.
    """

    __slots__ = ("_children", "args", "error", "fills", "needs", "obj", "op")

    def __init__(self, op: str, obj: Any = None, args: list[Value] | None = None) -> None:
        self.op = op
        self.obj = obj
        self.args: list[Value] = args if args is not None else []
        self.fills: list[Fill] = []
        self.needs: list[tuple[Node, bool]] = []
        self.index = None
        self.error: Exception | None = None
        self._children: list[Node] | None = None

    def fill(self, op: str, *args: Value, label: str = "", optional: bool = False) -> None:
        """Add a step that completes this node's object."""
        self.fills.append(Fill(op, list(args), label, optional))

    def children(self) -> list["Node"]:
        """Return the nodes that must exist before this one can be made.

        The result is stored, so the graph must be complete.
        """
        if self._children is None:
            self._children = nodes_in(self.args)
        return self._children

    def replace_args(self, args: list[Value]) -> None:
        """Replace the values from which this node's object is made."""
        self.args, self._children = args, None

    def leads_to(self) -> list["Node"]:
        """Return the nodes from which this node's object is made and completed, and those that it needs."""
        filled = [child for fill in self.fills for child in nodes_in(fill.args)]
        return [*self.children(), *filled, *(need for need, _ in self.needs)]


def nodes_in(value: Value) -> list[Node]:
    """Return the nodes that occur in a value."""
    return held_in(value, Node)


def type_name(obj: Any) -> str:
    """Return the name of an object's type, as error messages show it."""
    kind = type(obj)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _with_references(value: Value, reference: Callable[[Any], Any]) -> Value:
    """Return a value in which each part for which `reference` gives an object is replaced by that object."""
    kind = type(value)
    if kind is Reduced:
        return Reduced(value.maker, _with_references(value.args, reference))
    if kind in COMPOUND:
        return kind([_with_references(part, reference) for part in value])
    found = reference(value)
    return value if found is None else found


def fingerprint(start: Hashable, parts: Callable[[Any], Any], reference: Callable[[Any], Any]) -> bytes:
    """Return the digest of everything that is reachable from `start`, with items numbered in the order of the walk.

    Args:
        start: The first item.
        parts: Gives the contents of an item, as a value.
        reference: Gives the item that a part refers to, or None.
    """
    numbers: dict[Any, Reference] = {start: Reference(0)}
    order = [start]

    def numbered(part: Any) -> Reference | None:
        item = reference(part)
        if item is None:
            return None
        if item not in numbers:
            numbers[item] = Reference(len(numbers))
            order.append(item)
        return numbers[item]

    written = bytearray()
    # The loop appends to the list that it iterates over.
    for item in order:
        written += to_bytes(_with_references(parts(item), numbered))
    return digest(written)
