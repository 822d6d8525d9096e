"""The graph of what a capture holds, one node per object with an identity; and digests of its parts."""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import COMPOUND, Numbered, Reduced, Reference, held_in
from jitclient.core.digests import digest

Value = Any
"""A plain value, a node, a `Reduced`, a tuple or list of such, or a dict of atoms."""


class Fill(NamedTuple):
    """A step that completes an object after it was made."""

    op: str
    args: list[Value]
    label: str = ""
    lenient: bool = False
    """What it leads to may not be needed: what cannot be captured there fails when it is used."""


class Node(Numbered):
    """An object to be made: by `op` with `args`, which must exist; then completed by `fills`.

    `needs` are nodes that must be there before the object is used, without being part of it: the
    globals that a function reads.
    """

    __slots__ = ("_children", "args", "error", "fills", "needs", "obj", "op")

    def __init__(self, op: str, obj: Any = None, args: list[Value] | None = None) -> None:
        self.op = op
        self.obj = obj
        self.args: list[Value] = args if args is not None else []
        self.fills: list[Fill] = []
        self.needs: list[tuple[Node, bool]] = []  # (node, whether it may fail when used)
        self.index = None
        self.error: Exception | None = None
        self._children: list[Node] | None = None

    def fill(self, op: str, *args: Value, label: str = "", lenient: bool = False) -> None:
        """Add a step that completes this object."""
        self.fills.append(Fill(op, list(args), label, lenient))

    def children(self) -> list["Node"]:
        """What must exist before this can be made; ask only when the graph is complete."""
        if self._children is None:
            self._children = nodes_in(self.args)
        return self._children

    def replace_args(self, args: list[Value]) -> None:
        """Change what this is made from."""
        self.args, self._children = args, None

    def leads_to(self) -> list["Node"]:
        """What this is made from, completed with and needs."""
        filled = [child for fill in self.fills for child in nodes_in(fill.args)]
        return [*self.children(), *filled, *(need for need, _ in self.needs)]


def nodes_in(value: Value) -> list[Node]:
    """The nodes that a value mentions."""
    return held_in(value, Node)


def type_name(obj: Any) -> str:
    """How errors speak of the type of an object."""
    kind = type(obj)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _with_references(value: Value, reference: Callable[[Any], Any]) -> Value:
    """The value with what `reference` gives, unless that is None, in place of what stands for an object."""
    kind = type(value)
    if kind is Reduced:
        return Reduced(value.maker, _with_references(value.args, reference))
    if kind in COMPOUND:
        return kind([_with_references(part, reference) for part in value])
    found = reference(value)
    return value if found is None else found


def fingerprint(start: Hashable, parts: Callable[[Any], Any], reference: Callable[[Any], Any]) -> bytes:
    """The digest of all that can be reached from `start`, numbered in the order it is met: `parts` gives what an item
    consists of, as a value, and `reference` the item that a part refers to, or None.
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
    for item in order:  # grows while it is read
        written += to_bytes(_with_references(parts(item), numbered))
    return digest(written)
