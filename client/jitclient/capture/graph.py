"""The graph of what a capture holds: one node per object with an identity."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Value = Any
"""As in `format.py`, with nodes where the bytes have numbers."""


class Fill(NamedTuple):
    """A step that completes an object after it was made."""

    op: str
    args: list[Value]
    label: str = ""
    lenient: bool = False
    """What it leads to may not be needed: what cannot be captured there fails when it is used."""


class Node:
    """An object to be made: by `op` with `args`, which must exist; then completed by `fills`.

    `needs` are nodes that must be there before the object is used, without being part of it: the
    globals that a function reads.
    """

    __slots__ = ("_children", "args", "error", "fills", "index", "needs", "obj", "op")

    def __init__(self, op: str, obj: Any = None, args: list[Value] | None = None) -> None:
        self.op = op
        self.obj = obj
        self.args: list[Value] = args if args is not None else []
        self.fills: list[Fill] = []
        self.needs: list[tuple[Node, bool]] = []  # (node, whether it may fail when used)
        self.index: int | None = None
        self.error: Exception | None = None
        self._children: list[Node] | None = None

    def fill(self, op: str, *args: Value, label: str = "", lenient: bool = False) -> None:
        """Add a step that completes this object."""
        self.fills.append(Fill(op, list(args), label, lenient))

    def children(self) -> list["Node"]:
        """What must exist before this can be made; ask only when the graph is complete."""
        if self._children is None:
            self._children = list(nodes_in(self.args))
        return self._children

    def replace_args(self, args: list[Value]) -> None:
        """Change what this is made from."""
        self.args, self._children = args, None


def nodes_in(value: Value) -> Iterator[Node]:
    """The nodes that a value mentions."""
    kind = type(value)
    if kind is Node:
        yield value
    elif kind is tuple or kind is list:
        for part in value:
            if type(part) in _COMPOUND:
                yield from nodes_in(part)


_COMPOUND = frozenset({Node, tuple, list})


def renumbered(value: Value, number: Callable[[Node], int]) -> Value:
    """The value with `(number,)` in place of each node."""
    kind = type(value)
    if kind is Node:
        return (number(value),)
    if kind is tuple:
        return tuple([renumbered(p, number) if type(p) in _COMPOUND else p for p in value])
    if kind is list:
        return [renumbered(p, number) if type(p) in _COMPOUND else p for p in value]
    return value
