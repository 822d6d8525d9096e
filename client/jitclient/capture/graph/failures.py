"""Which failure of a walk matters, and how an error says by which way it is reached."""

from collections.abc import Iterator
from typing import Any

from jitclient.capture.graph.nodes import Node, Value, nodes_in, type_name
from jitclient.capture.user_code.ownership import is_user_class
from jitclient.errors import AmbientInput


def raise_needed(roots: Value, allow_ambient: bool = False, calls_back: bool = False) -> AmbientInput | None:
    """Raise the first failure that is sure to be needed, with the way to it; one that is allowed is returned.

    If the function `calls_back`, what fails may be for its callbacks, which happen in the client: then the failure
    waits until a trace uses what cannot be captured.
    """
    allowed: AmbientInput | None = None
    came_from: dict[Node, tuple[Node | None, str]] = dict.fromkeys(nodes_in(roots), (None, ""))
    queue = list(came_from)
    for node in queue:  # grows while it is read
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
    """Put a trap where the failure is or, if it is a part of an installed class's object, in the place of that."""
    whole, at = failed, came_from[failed][0]
    while at is not None:
        if at.op in _INSTANCES and not is_user_class(type(at.obj)):
            whole = at
        at = came_from[at][0]
    if whole is not failed or not callable(failed.obj):  # else the error is the same in all processes
        whole.op, whole.args = "trap", [False, f"{type_name(whole.obj)} cannot be captured"]
        whole.fills, whole.needs = [], []


def _sure_edges(node: Node) -> Iterator[tuple[Node, str]]:
    """What is needed whenever a node is, and what that is of it; methods of a class may never be called."""
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
        if not fill.lenient:
            for child in nodes_in(fill.args):
                yield child, fill.label or _place_in(fill.args, child)
    for child, lenient in node.needs:
        if not lenient:
            yield child, ""


def _place_in(args: Value, child: Node) -> str:
    """The attribute, key or position under which an object holds another."""
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
    """The steps from the root to a failure: ["global CONFIG of step", "attribute lock of Config"]."""
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
