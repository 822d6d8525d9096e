"""Explanations of misses: how a program differs from a given other one, or from its nearest earlier relative."""

import itertools
import os
from collections.abc import Iterable, Mapping

from jitclient.capture.explain.parts import CapturePart
from jitclient.capture.explain.texts import place_of_change
from jitclient.wire.explaining import Difference, Explained, Why
from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import Prepare
from jitserver.store import key_parts
from jitserver.store.entry import MANIFEST
from jitserver.store.key_parts import CachedPrograms, Compared

_MAX_COMPARED = 20
"""Maximum number of programs of one kind (see `_kinds`) that are compared, the most recently used first."""
_MAX_NEAR = 12
"""Maximum number of differences in the code and values of a relative."""

_CAPTURE, _TREE, _LEAVES = "capture", "tree", "leaves"
_OF_DAEMON = ("packages", "process", "machine")
_SAME_CODE = "same code as "

_Pair = tuple[CapturePart | None, CapturePart | None]


def explain(programs: CachedPrograms, request: Why) -> Explained | None:
    """Return how a program differs from a requested other one, or else from its nearest relative.

    Returns:
        The explanation; None if one of the requested programs does not exist.
    """
    stored = programs.stored(request.key)
    if stored is None:
        return None
    this = key_parts.of_stored(programs, stored)
    if not request.other:
        return with_nearest(programs, stored.key, this)
    other = programs.stored(request.other)
    if other is None:
        return None
    return Explained(stored.key, stored.info, other.info, differences(key_parts.of_stored(programs, other), this))


def with_nearest(programs: CachedPrograms, key: str, program: Compared, refusal: str = "") -> Explained:
    """Return how a program differs from its nearest relative.

    Args:
        programs: the cache.
        key: the call key; its program may not exist yet.
        program: the program.
        refusal: the reason why the daemon cannot make the program, for the explanation.
    """
    infos = {info.key: info for info in programs.infos()}
    found = infos.pop(key, None)
    others = sorted(infos.values(), key=lambda info: -info.last_used)
    # A program made later cannot be the reason why this program was made.
    if found is not None:
        others = [info for info in others if info.created < found.created] or others
    for kind in _kinds(program.request, others):
        stored = filter(None, (programs.stored(info.key) for info in itertools.islice(kind, _MAX_COMPARED)))
        compared = [(each.info, differences(key_parts.of_stored(programs, each), program)) for each in stored]
        near = [pair for pair in compared if _is_near(pair[0], pair[1], program)]
        if near:
            closest, differ = min(near, key=lambda pair: len(pair[1]))
            return Explained(key, found, closest, differ, refusal)
    return Explained(key, found, None, (), refusal)


def _kinds(request: Prepare, others: list[EntryInfo]) -> Iterable[list[EntryInfo]]:
    """Yield relatives, the nearest first: of the same file, in it under another name, of the same module, by name."""
    file, module = _file(request.where), os.path.basename(_file(request.where))
    named = [info for info in others if info.name == request.name]
    in_file = [info for info in named if _file(info.where) == file]
    yield in_file
    yield [info for info in others if info.name != request.name and file and _file(info.where) == file]
    in_module = [info for info in named if info not in in_file and os.path.basename(_file(info.where)) == module]
    yield in_module
    yield [info for info in named if info not in in_file and info not in in_module]


def _file(where: str) -> str:
    return where.rpartition(":")[0]


def _is_near(info: EntryInfo, differ: tuple[Difference, ...], program: Compared) -> bool:
    """Return whether a program is a relative, rather than another function that happens to have the same name."""
    of_code = [each for each in differ if each.row == _CAPTURE]
    if info.name != program.request.name:
        return any(each.what.startswith(_SAME_CODE) for each in of_code)
    return len(of_code) <= _MAX_NEAR


def differences(old: Compared, new: Compared) -> tuple[Difference, ...]:
    """Return the differences between two programs; empty if and only if their keys are equal.

    If a row differs although none of its parts does, the row itself is named.

    Example:
        >>> [str(difference) for difference in differences(old, new)]
        ['global LR: 0.001 -> 0.002', 'argument x: float32[32,8] -> float32[33,8]']
    """
    found: dict[str, list[Difference]] = {}
    for row in dict.fromkeys([*old.rows, *new.rows]):
        if old.rows.get(row) != new.rows.get(row):
            found[row] = _in_row(row, old, new)
    # The arguments that came and went have their names, which say more than positions in a tree.
    if any(None in (each.old, each.new) for each in found.get(_LEAVES, [])):
        found.pop(_TREE, None)
    # Other code reads other data, so that only data which both programs read is of interest, if anything else differs.
    if MANIFEST in found:
        found[MANIFEST] = found.pop(MANIFEST) or ([] if found else [Difference("data of installed packages", "", "")])
    return tuple(dict.fromkeys(itertools.chain.from_iterable(found.values())))


def _in_row(row: str, old: Compared, new: Compared) -> list[Difference]:
    if row == MANIFEST:
        return _of_packages(old, new)
    if row == _CAPTURE:
        return _of_capture(old, new)
    if row in _OF_DAEMON:
        return _of_daemon(old, new) or [Difference(row, "", "")]
    return _changed(row, key_parts.of_row(row, old), key_parts.of_row(row, new)) or [Difference(row, "", "")]


def _of_capture(old: Compared, new: Compared) -> list[Difference]:
    theirs, name = old.request.name, new.request.name
    is_renamed = theirs != name
    before, after = (key_parts.of_capture(program, name if is_renamed else "") for program in (old, new))
    found = _changed(_CAPTURE, key_parts.of_inputs(old), key_parts.of_inputs(new))
    if before and after:
        found = _changed(_CAPTURE, before, after) + found
        if is_renamed and not any(each.what == f"code of {name}" for each in found):
            place = os.path.basename(old.request.where)
            return [Difference(f"{_SAME_CODE}{theirs}", None, None, place, _CAPTURE), *found]
    if found:
        return found
    is_traced = not (old.request.lookup.function_key and new.request.lookup.function_key)
    what = "program traced in the client" if is_traced else f"code or values of {name}"
    return [Difference(what, "", "", "", _CAPTURE)]


def _of_daemon(old: Compared, new: Compared) -> list[Difference]:
    """Return the versions and other facts that differ."""
    settings = {name for each in (old, new) for name in key_parts.settings_of(each.request.lookup.signature)}
    pairs = {label: (old.context.get(label), new.context.get(label)) for label in {**old.context, **new.context}}
    return [Difference(label, *pair) for label, pair in pairs.items() if pair[0] != pair[1] and label not in settings]


def _of_packages(old: Compared, new: Compared) -> list[Difference]:
    """Return the data of packages that both programs read, and that differs."""
    unobserved = [each.request.manifest for each in (old, new) if each.request.manifest is not None]
    if why := next((each.why_of_one_process for each in unobserved if each.why_of_one_process), ""):
        return [Difference(why, None, None)]
    before = key_parts.state_of(old)
    after = key_parts.state_of(new, old.request.manifest.names if old.request.manifest is not None else ())
    return [
        Difference(name, was[1], after[name][1])
        for name, was in before.items()
        if name in after and after[name][0] != was[0]
    ]


def _changed(row: str, before: Iterable[CapturePart], after: Iterable[CapturePart]) -> list[Difference]:
    old, new = ({part.label: part for part in parts} for parts in (before, after))
    pairs = {label: (old.get(label), new.get(label)) for label in dict.fromkeys([*old, *new])}
    changed = {label: pair for label, pair in pairs.items() if _digest(pair[0]) != _digest(pair[1])}
    found = [_difference(row, label, pair) for label, pair in changed.items() if not _is_implied(label, changed)]
    # Names with "__", which Python derives from the user's code, come last.
    return sorted(found, key=lambda found: "__" in found.what)


def _digest(part: CapturePart | None) -> bytes | None:
    return None if part is None else part.digest


def _difference(row: str, label: str, pair: _Pair) -> Difference:
    old, new = pair
    texts = [None if part is None else part.text for part in pair]
    where = "" if new is None else new.where
    if old is not None and new is not None and old.code and new.code:
        where = place_of_change(old.code, new.code) or where
    return Difference(label, texts[0], texts[1], where, row)


def _is_implied(label: str, changed: Mapping[str, _Pair]) -> bool:
    """Return whether a part was only added or removed because its reported container changed."""
    if None not in changed[label]:
        return False
    stem, _, owner = label.partition(" of ")
    holders = (other.partition(" of ") for other in changed if other != label)
    return any(
        owner == theirs and stem.startswith((f"{other}[", f"{other}.", f"{other}: ")) for other, _, theirs in holders
    )
