"""Explanations of misses: how a program differs from a given other one, or from the most similar earlier one."""

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping

from jitclient.wire.explaining import Difference, Explained, KeyPart, Why, decode_parts
from jitserver.store.entry import CachedProgram, KeyComponents

Find = Callable[[str], CachedProgram | None]
"""Function that returns the program of a key, or None."""

Named = Callable[[str], Iterable[CachedProgram]]
"""Function that returns the programs whose function has a name, the most recently used first."""

_Pair = tuple[KeyPart | None, KeyPart | None]

_MAX_COMPARED = 200


def explain(find: Find, named: Named, request: Why) -> Explained | None:
    """Return how a program differs from a requested other one, or else from the most similar one.

    Returns:
        The explanation; None if one of the requested programs does not exist.
    """
    known = find(request.key)
    if known is None:
        return None
    if not request.other:
        return compare_with_nearest(find, named, known.key, known.components, known.info.name)
    other = find(request.other)
    if other is None:
        return None
    return Explained(known.key, known.info, other.info, differences(other.components, known.components))


def compare_with_nearest(
    find: Find, named: Named, key: str, components: KeyComponents, name: str, refusal: str = ""
) -> Explained:
    """Return how a program differs from the most similar other program of the same function name.

    Args:
        find: the look-up by key.
        named: the look-up by function name.
        key: the call key; its program may not exist yet.
        components: the inputs that determine the call key.
        name: the name of the function.
        refusal: the reason why the daemon cannot make the program, for the explanation.
    """
    found = find(key)
    others = [known for known in named(name) if known.key != key]
    # A program made later cannot be the reason why this program was made.
    if found is not None:
        others = [known for known in others if known.info.created < found.info.created] or others
    compared = [(known, differences(known.components, components)) for known in itertools.islice(others, _MAX_COMPARED)]
    closest, differ = min(compared, key=lambda pair: len(pair[1]), default=(None, ()))
    return Explained(key, found.info if found else None, closest.info if closest else None, differ, refusal)


def differences(old: KeyComponents, new: KeyComponents) -> tuple[Difference, ...]:
    """Return the differences between two programs; empty if and only if their keys are equal.

    If a row differs although none of its described parts does, the row itself is named.

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
    found = [_difference(label, pair) for label, pair in changed.items() if not _is_implied(label, changed)]
    # Names with "__", which Python derives from the user's code, come last.
    return sorted(found, key=lambda found: "__" in found.what)


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


def _is_implied(label: str, changed: Mapping[str, _Pair]) -> bool:
    """Return whether a part was only added or removed because its reported container changed."""
    if None not in changed[label]:
        return False
    stem, _, owner = label.partition(" of ")
    holders = (other.partition(" of ") for other in changed if other != label)
    return any(
        owner == theirs and stem.startswith((f"{other}[", f"{other}.", f"{other}: ")) for other, _, theirs in holders
    )
