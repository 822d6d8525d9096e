"""Why a program was made instead of found: where it differs from another, or from the nearest one before it."""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping

from jitclient.wire.explaining import Difference, Explained, KeyPart, Why, decode_parts
from jitserver.store.entry import Known, Makeup

Find = Callable[[str], Known | None]
"""Finds a program by its key."""

Named = Callable[[str], Iterable[Known]]
"""Finds those whose function has that name, the ones used last first."""

_Pair = tuple[KeyPart | None, KeyPart | None]

_MOST_COMPARED = 200


def why(find: Find, named: Named, request: Why) -> Explained | None:
    """Where a program differs from another, or from the nearest other one; None if one of them is not there."""
    known = find(request.key)
    if known is None:
        return None
    if not request.other:
        return against_nearest(find, named, known.key, known.makeup, known.info.name)
    other = find(request.other)
    if other is None:
        return None
    return Explained(known.key, known.info, other.info, differences(other.makeup, known.makeup))


def against_nearest(find: Find, named: Named, key: str, makeup: Makeup, name: str, refusal: str = "") -> Explained:
    """Where a program that is there, or is to be made, differs from the nearest other one of that name."""
    found = find(key)
    others = [known for known in named(name) if known.key != key]
    if found is not None:  # what was made later is no reason for having made this one
        others = [known for known in others if known.info.created < found.info.created] or others
    compared = [(known, differences(known.makeup, makeup)) for known in itertools.islice(others, _MOST_COMPARED)]
    closest, differ = min(compared, key=lambda pair: len(pair[1]), default=(None, ()))
    return Explained(key, found.info if found else None, closest.info if closest else None, differ, refusal)


def differences(old: Makeup, new: Makeup) -> tuple[Difference, ...]:
    """Where two programs differ; empty if and only if their keys are the same.

    A row that differs although no part of it does is named itself.

    Example:
        >>> [str(difference) for difference in differences(old, new)]
        ['global LR: 0.001 -> 0.002', 'argument x: float32[32,8] -> float32[33,8]']
    """
    before, after = _by_label(old.parts), _by_label(new.parts)
    found: list[Difference] = []
    for row in dict.fromkeys([*old.rows, *new.rows]):
        if old.rows.get(row) != new.rows.get(row):
            found += _in_row(before.get(row, {}), after.get(row, {})) or [Difference(row, "", "")]
    return tuple(found)


def _in_row(before: dict[str, KeyPart], after: dict[str, KeyPart]) -> list[Difference]:
    pairs = {label: (before.get(label), after.get(label)) for label in dict.fromkeys([*before, *after])}
    changed = {label: (old, new) for label, (old, new) in pairs.items() if _digest(old) != _digest(new)}
    told = [_difference(label, pair) for label, pair in changed.items() if not _goes_without_saying(label, changed)]
    return sorted(told, key=lambda told: "__" in told.what)  # last what Python wrote, out of what the user wrote


@functools.lru_cache(maxsize=8)
def _by_label(parts: bytes) -> dict[str, dict[str, KeyPart]]:
    rows: dict[str, dict[str, KeyPart]] = {}
    for part in decode_parts(parts):
        rows.setdefault(part.row, {})[part.label] = part
    return rows


def _digest(part: KeyPart | None) -> bytes | None:
    return None if part is None else part.digest


def _difference(label: str, pair: _Pair) -> Difference:
    old, new = (None if part is None else part.text for part in pair)
    return Difference(label, old, new, pair[1].where if pair[1] is not None else "")


def _goes_without_saying(label: str, changed: Mapping[str, _Pair]) -> bool:
    """Whether something is there or not because what holds it changed, which is told."""
    if None not in changed[label]:
        return False
    stem, _, owner = label.partition(" of ")
    holders = (other.partition(" of ") for other in changed if other != label)
    return any(
        owner == theirs and stem.startswith((f"{other}[", f"{other}.", f"{other}: ")) for other, _, theirs in holders
    )
