"""Why a program was made instead of found: where it differs from another, or from the nearest one before it."""

import itertools
from collections.abc import Callable, Iterable

from jitclient.wire.explaining import Explained, Why
from jitclient.wire.messages import EntryInfo
from jitserver.cache.call_key import Makeup, differences
from jitserver.cache.tier import Known

Find = Callable[[str], Known | None]
"""Finds a program by its key."""

Named = Callable[[str], Iterable[Known]]
"""Finds those whose function has that name, the ones used last first."""

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
    return Explained(key, _info(found), _info(closest), differ, refusal)


def _info(known: Known | None) -> EntryInfo | None:
    return known.info if known is not None else None
