"""Failures of a walk: which of them matters, and the path by which the failed object is reached, for the error."""

from collections.abc import Iterator
from typing import Any

from jitclient.capture.graph.nodes import Node, Value, nodes_in, type_name
from jitclient.capture.user_code.ownership import is_user_class
from jitclient.errors import AmbientInput


def raise_needed(roots: Value, allow_ambient: bool = False, calls_back: bool = False) -> AmbientInput | None:
    """Raise the first failure of an object that is certain to be needed, with the path to the object.

    If the function may have callbacks, the failed object may be needed only by them, and they run in the client. Then
    the object is replaced by a trap, which fails when a trace uses it.

    Args:
        roots: The value from which the walk started.
        allow_ambient: Whether to return a failure that is an ambient input instead of raising it.
        calls_back: Whether the function may have callbacks.

    Returns:
        The first failure that is allowed, or None.
    """
    allowed: AmbientInput | None = None
    came_from: dict[Node, tuple[Node | None, str]] = dict.fromkeys(nodes_in(roots), (None, ""))
    queue = list(came_from)
    # The loop appends to the list that it iterates over.
    for node in queue:
        if node.error is not None and calls_back:
            _trap(node, came_from)
        elif node.error is not None:
            way = " -> ".join(_way(node, came_from))
            failure = type(node.error)(f"{node.error}; reached by {way}")
            if not (allow_ambient and isinstance(failure, AmbientInput)):
                raise failure from node.error
            allowed = allowed or failure
        for child, label in _sure_edges(node):
            if child not in came_from:
                came_from[child] = (node, label)
                queue.append(child)
    return allowed


def _trap(failed: Node, came_from: dict[Node, tuple[Node | None, str]]) -> None:
    """Replace a failed object by a trap, or the outermost instance of an installed class that it is part of."""
    whole, at = failed, came_from[failed][0]
    while at is not None:
        if at.op in _INSTANCES and not is_user_class(type(at.obj)):
            whole = at
        at = came_from[at][0]
    # A failed callable that is part of no instance stays the trap that it is: its error is equal in all processes.
    if whole is not failed or not callable(failed.obj):
        whole.op, whole.args = "trap", [False, f"{type_name(whole.obj)} cannot be captured"]
        whole.fills, whole.needs = [], []


def _sure_edges(node: Node) -> Iterator[tuple[Node, str]]:
    """Yield the nodes that are certain to be needed if a node is, each with its role in the node's object.

    The methods of a class are not among them, because they may never be called.
    """
    args, label = node.args, ""
    match node.op:
        case "class":
            args, label = args[:4], "base"
        case "bind":
            label = f"global {args[1]}"
        case "patch":
            label = ".".join((f"global {args[1]}", *args[2]))
    for child in nodes_in(args):
        yield child, label
    for fill in node.fills:
        if not fill.optional:
            for child in nodes_in(fill.args):
                yield child, fill.label or _place_in(fill.args, child)
    for child, optional in node.needs:
        if not optional:
            yield child, ""


def _place_in(args: Value, child: Node) -> str:
    """Return the attribute, key or position under which an object holds another, as text for messages."""
    if not args or type(args[0]) is not list:
        return ""
    for position, item in enumerate(args[0]):
        if child not in nodes_in(item):
            continue
        if type(item) is list and len(item) == 2:
            return f"attribute {item[0]}" if isinstance(item[0], str) else "an item"
        return f"item {position}"
    return ""


def _way(node: Node, came_from: dict[Node, tuple[Node | None, str]]) -> list[str]:
    """Return the steps from the root to a failure: ["global CONFIG of step", "attribute lock of Config"]."""
    path: list[tuple[Node, str]] = []
    at: Node | None = node
    while at is not None:
        above, label = came_from[at]
        path.append((at, label))
        at = above
    owner = ""
    way = []
    for at, label in reversed(path):
        if label:
            way.append(f"{label} of {owner}" if owner else label)
        elif at is node and owner:
            way.append(f"{_name_of(at.obj)} of {owner}" if at.obj is not None else owner)
        if at.op not in _UNNAMED:
            owner = _name_of(at.obj)
    return way or [owner]


_INSTANCES = ("new", "bare", "call")
_UNNAMED = ("bind", "cell", "patch", "whole")


def _name_of(obj: Any) -> str:
    name = getattr(obj, "__qualname__", None)
    return name if isinstance(name, str) else type(obj).__name__
