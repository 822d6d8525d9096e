"""What a trace changed of the data that it read: counters and caches, or values that later traces depend on."""

from typing import Any

from jitclient.manifest.definitions import FIELDS, Tree, bytes_of

_UNCOUNTED = frozenset({"again", "dict", "list", "opaque", "set", "weak"})
"""Kinds of what may be a cache. Its contents are left out once a trace has added to it."""


def only_grew(before: Tree, after: Tree) -> bool:
    """Whether only counters and caches differ: integers, and containers that still have all that they had."""
    if issubclass(type(before), int):
        return issubclass(type(after), int)
    if before is None:  # made when it is first needed
        return after is None or type(after) is tuple
    if type(before) is not tuple or type(after) is not tuple:
        return bytes_of(before) == bytes_of(after)
    kind, *held = before
    if kind != after[0]:
        return False
    if kind in ("again", "opaque", "weak"):
        return True
    if kind in ("dict", FIELDS):
        return _rows_grew(before, after)
    if kind == "set":
        return set(held) <= set(after)
    if kind == "list" and len(after) > len(before):
        after = after[: len(before)]
    if kind == "advancing":
        return (_is_count(before) and _is_count(after)) or bytes_of(before) == bytes_of(after)
    return len(before) == len(after) and all(map(only_grew, held, after[1:]))


def _is_count(tree: Tree) -> bool:
    """Whether a tree describes an `itertools.count`, which counts as an integer does."""
    return tuple(tree[:2]) == ("advancing", "count")


def _rows_grew(before: Tree, after: Tree) -> bool:
    rows: dict[bytes, Any] = {bytes_of(key): value for key, value in after[1:]}
    return all(bytes_of(key) in rows and only_grew(value, rows[bytes_of(key)]) for key, value in before[1:])


def without_counters(tree: Tree) -> Tree:
    """A description without integers, and without the contents of containers."""
    if issubclass(type(tree), int):
        return ("integer",)
    if type(tree) is not tuple:
        return tree
    kind, *held = tree
    if kind in _UNCOUNTED:
        return (kind,)
    if _is_count(tree):
        return tree[:2]
    if kind == FIELDS:
        return (kind, *((name, without_counters(value)) for name, value in held))
    return (kind, *map(without_counters, held))
