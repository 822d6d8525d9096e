"""Changes that a trace made to data that it read: to counters and caches, or to values that later traces depend on.

Counters and caches are removed from descriptions before these are compared, so that all other parts still count. The
contents of caches differ from run to run, because a program found by a look-up is not traced and so fills no cache.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jitclient.capture.manifest.definitions import FIELDS, Tree, bytes_of

Place = tuple[int, ...]
"""The location of a part of a description: the positions that lead to it."""

_CHANGING = frozenset({"opaque", "weak"})
_ROWS = frozenset({"dict", FIELDS})
_DEFINITIONS = ("function", "class")
_PLAIN = (bool, bytes, complex, float, int, str)
_ALL = "*"


class _NotOnlyCountersError(Exception):
    """A difference between two descriptions in more than counters and caches."""


def changed_counters(before: Tree, after: Tree) -> list[Place] | None:
    """Return the places of counters and caches that differ: changed integers, and containers with additional entries.

    Return None if anything else differs.
    """
    try:
        return list(_changed_counters(before, after, ()))
    except _NotOnlyCountersError:
        return None


def _changed_counters(before: Tree, after: Tree, place: Place) -> Iterator[Place]:
    if type(before) is int and type(after) is int:
        yield from () if before == after else (place,)
    elif before is None and type(after) is tuple:
        # The object was made on first use. Its place still counts in comparisons, because a program may set it itself.
        yield from ()
    elif type(before) is not tuple or type(after) is not tuple:
        _require(bytes_of(before) == bytes_of(after))
    else:
        _require(before[0] == after[0])
        yield from _changed_parts(before, after, place)


def _changed_parts(before: tuple[Any, ...], after: tuple[Any, ...], place: Place) -> Iterator[Place]:
    kind, *held = before
    # The number of an object that is described elsewhere: `without` removes all of these.
    if kind == "again":
        return
    if kind in _CHANGING or (_is_count(before) and _is_count(after)):
        yield from () if bytes_of(before) == bytes_of(after) else (place,)
    elif kind == "advancing":
        _require(bytes_of(before) == bytes_of(after))
    elif kind == "set":
        _require(set(held) <= set(after))
        yield from () if len(before) == len(after) else (place,)
    else:
        pairs: list[tuple[Place, Tree, Tree]]
        if kind in _ROWS:
            rows = {bytes_of(key): value for key, value in after[1:]}
            _require(all(bytes_of(key) in rows for key, _ in held))
            pairs = [((n, 1), value, rows[bytes_of(key)]) for n, (key, value) in enumerate(held, 1)]
        else:
            _require(len(before) == len(after) or (kind == "list" and len(before) < len(after)))
            pairs = [((n,), one, other) for n, (one, other) in enumerate(zip(held, after[1:], strict=False), 1)]
        parts = [found for where, one, other in pairs for found in _changed_counters(one, other, (*place, *where))]
        # A new attribute of an object does not affect its other attributes.
        has_more = kind != FIELDS and len(after) > len(before)
        yield from [place, *parts] if has_more else parts


def _require(holds: bool) -> None:
    if not holds:
        raise _NotOnlyCountersError


def _is_count(tree: Tree) -> bool:
    """Return whether a tree describes an `itertools.count`, which is treated like an integer."""
    return tuple(tree[:2]) == ("advancing", "count")


def remove_places(tree: Tree, places: Iterable[Place]) -> Tree:
    """Return a description without the parts at some places."""
    places = list(places)
    if () in places:
        return ("grown", *sorted(_settings(tree, {place[0] for place in places if place})))
    if type(tree) is not tuple or tree[0] == "again":
        return tree
    kind, *held = tree
    below = [[place[1:] for place in places if place[0] == n] for n in range(1, len(tree))]
    if kind in _ROWS:
        values = [[place[1:] for place in row] for row in below]
        return (
            kind,
            *((remove_places(k, ()), remove_places(v, there)) for (k, v), there in zip(held, values, strict=True)),
        )
    return (kind, *map(remove_places, held, below))


def _settings(tree: Tree, changed: set[int]) -> Iterator[bytes]:
    """Yield the parts of a growing container that the program may have set: named settings, and its own objects."""
    kind, *held = tree if type(tree) is tuple else ("",)
    rows = [row if kind == "dict" else (None, row) for n, row in enumerate(held, 1) if n not in changed]
    if kind in ("dict", "list"):
        yield from (bytes_of(row) for row in rows if _is_users(row[1]) or (type(row[0]) is str and _is_setting(row[1])))


def _is_setting(tree: Tree) -> bool:
    return type(tree) in _PLAIN or (type(tree) is tuple and tree[0] in _DEFINITIONS)


def _is_users(tree: Tree) -> bool:
    """Return whether a description is that of a function, a class or an instance of a class of the user's."""
    if type(tree) is not tuple:
        return False
    return _is_users(tree[1]) if tree[0] == "object" else tree[0] in _DEFINITIONS and tree[1] == ""


def written(places: Iterable[Place]) -> str:
    """Return places as text, for the end of a name."""
    return ",".join(".".join(map(str, place)) or _ALL for place in places)


def places_in(text: str) -> list[Place]:
    """Return the places that `written` wrote into a text."""
    found = text.split(",") if text else []
    return [() if place == _ALL else tuple(map(int, place.split("."))) for place in found]
