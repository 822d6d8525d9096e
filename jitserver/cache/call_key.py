"""What decided a call key, and where two of them differ: the one place that compares programs."""

import dataclasses
import functools
from collections.abc import Mapping

from jitclient.wire.explaining import Difference, KeyPart, decode_parts

Pair = tuple[KeyPart | None, KeyPart | None]


@dataclasses.dataclass(frozen=True)
class Makeup:
    """What decided a call key.

    Attributes:
        rows: the digest of each row of the table of keys; two keys differ if and only if one of these does.
        parts: what the rows are made of, in words, encoded.
    """

    rows: Mapping[str, bytes]
    parts: bytes


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
    return sorted(told, key=_is_derived)


@functools.lru_cache(maxsize=8)
def _by_label(parts: bytes) -> dict[str, dict[str, KeyPart]]:
    rows: dict[str, dict[str, KeyPart]] = {}
    for part in decode_parts(parts):
        rows.setdefault(part.row, {})[part.label] = part
    return rows


def _digest(part: KeyPart | None) -> bytes | None:
    return None if part is None else part.digest


def _difference(label: str, pair: Pair) -> Difference:
    old, new = (None if part is None else part.text for part in pair)
    return Difference(label, old, new, pair[1].where if pair[1] is not None else "")


def _goes_without_saying(label: str, changed: Mapping[str, Pair]) -> bool:
    """Whether something is there or not because what holds it changed, which is told."""
    if None not in changed[label]:
        return False
    stem, _, owner = label.partition(" of ")
    holders = (other.partition(" of ") for other in changed if other != label)
    return any(
        owner == theirs and stem.startswith((f"{other}[", f"{other}.", f"{other}: ")) for other, _, theirs in holders
    )


def _is_derived(difference: Difference) -> bool:
    """Whether Python wrote it, out of something that the user wrote and that is told too."""
    return "__" in difference.what
