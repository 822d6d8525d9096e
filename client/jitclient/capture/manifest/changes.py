"""What a trace changed of the data that it read: counters and caches, or values that later traces depend on.

Counters and caches are left out of a comparison where they are in a description, so that all beside them counts. A
program that is found is not traced, and fills no cache: so what caches hold differs from run to run.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from jitclient.capture.manifest.definitions import FIELDS, Tree, bytes_of

Place = tuple[int, ...]
"""Where a part of a description is: the positions that lead to it."""

_CHANGING = frozenset({"opaque", "weak"})
_ROWS = frozenset({"dict", FIELDS})
_PLAIN = (bool, bytes, complex, float, int, str)
_ALL = "*"


class _OtherError(Exception):
    """More than counters and caches differ."""


def grown(before: Tree, after: Tree) -> list[Place] | None:
    """Return where counters and caches are that differ: integers, and containers that have more than they had.

    None if anything else differs.
    """
    try:
        return list(_grown(before, after, ()))
    except _OtherError:
        return None


def _grown(before: Tree, after: Tree, place: Place) -> Iterator[Place]:
    if issubclass(type(before), int) and issubclass(type(after), int):
        yield from () if before == after else (place,)
    elif (
        before is None and type(after) is tuple
    ):  # made when it is first needed; elsewhere, the program may have set it
        yield from ()
    elif type(before) is not tuple or type(after) is not tuple:
        _require(bytes_of(before) == bytes_of(after))
    else:
        _require(before[0] == after[0])
        yield from _parts_grown(before, after, place)


def _parts_grown(before: tuple[Any, ...], after: tuple[Any, ...], place: Place) -> Iterator[Place]:
    kind, *held = before
    if kind == "again":  # `without` leaves out all of these
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
        parts = [found for where, one, other in pairs for found in _grown(one, other, (*place, *where))]
        has_more = kind != FIELDS and len(after) > len(
            before
        )  # an object's new attribute leaves the others as they are
        yield from [place, *parts] if has_more else parts


def _require(holds: bool) -> None:
    if not holds:
        raise _OtherError


def _is_count(tree: Tree) -> bool:
    """Whether a tree describes an `itertools.count`, which counts as an integer does."""
    return tuple(tree[:2]) == ("advancing", "count")


def without(tree: Tree, places: Iterable[Place]) -> Tree:
    """A description without what is at some places, and without the numbers of objects that come again."""
    places = list(places)
    if () in places:
        return ("grown", *sorted(_settings(tree, {place[0] for place in places if place})))
    if type(tree) is not tuple or tree[0] == "again":
        return tree[:1] if type(tree) is tuple else tree
    kind, *held = tree
    below = [[place[1:] for place in places if place[0] == n] for n in range(1, len(tree))]
    if kind in _ROWS:
        values = [[place[1:] for place in row] for row in below]
        return (kind, *((without(k, ()), without(v, there)) for (k, v), there in zip(held, values, strict=True)))
    return (kind, *map(without, held, below))


def _settings(tree: Tree, changed: set[int]) -> Iterator[bytes]:
    """What the program may have put into a dictionary that a trace fills, too: plain values under names."""
    if type(tree) is tuple and tree[0] == "dict":
        rows = [row for n, row in enumerate(tree[1:], 1) if n not in changed]
        yield from (bytes_of(row) for row in rows if type(row[0]) is str and type(row[1]) in _PLAIN)


def written(places: Iterable[Place]) -> str:
    """Places as text."""
    return ",".join(".".join(map(str, place)) or _ALL for place in places)


def places_in(text: str) -> list[Place]:
    """The places that are written in a text."""
    found = text.split(",") if text else []
    return [() if place == _ALL else tuple(map(int, place.split("."))) for place in found]
