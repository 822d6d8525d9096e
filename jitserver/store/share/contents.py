"""Care for the lab's cache from the command line: what is there, what is valid, and what may go."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from jitserver.store.checked_files import Corrupt
from jitserver.store.entry import OVERHEAD_BYTES, Stored
from jitserver.store.share import entries, signing
from jitserver.store.share.objects import Object, Objects
from jitserver.store.share.signing import Rejected

HALF_LIFE_SECONDS = 30 * 24 * 3600.0
"""Age at which an entry is worth half. The storage does not tell when it was used."""

_KINDS = {
    "programs": (entries.FOLDER, entries.PROGRAM),
    "traces": (entries.FOLDER, entries.TRACE),
    "compilations": (entries.COMPILATIONS, entries.EXECUTABLE),
}
"""Kinds of entries that take space: their folder, and the last part of their names."""

_UNFINISHED_SECONDS = 24 * 3600.0
"""Age from which on a write has ended without an entry."""

_READERS = 16


class Checked(NamedTuple):
    """An entry: its object, the program if it is one, and who has made it, if it says so; or why it is not valid."""

    entry: Object
    program: Stored | None
    by: str
    problem: str


def everything(objects: Objects) -> dict[str, list[Object]]:
    """Return the entries of this version by kind, the oldest first, without those that help to find them."""
    folders = {folder: objects.all(folder) for folder, _ in _KINDS.values()}
    found = {folder: sorted(each, key=lambda entry: entry.written) for folder, each in folders.items()}
    return {
        kind: [entry for entry in found[folder] if entry.name.endswith(f"/{end}")]
        for kind, (folder, end) in _KINDS.items()
    }


def checked(objects: Objects, key: bytes, each: Iterable[Object]) -> Iterator[Checked]:
    """Read entries, and yield what they are."""
    for entry in each:
        data = objects.get(entry.name, entry.nbytes)
        if data is None:  # another member has removed it
            continue
        try:
            yield _checked(entry, signing.verified(key, entry.name, data))
        except (Rejected, Corrupt) as error:
            reason = str(error) if isinstance(error, Rejected) else "version"
            yield Checked(entry, None, "", reason)


def _checked(entry: Object, payload: memoryview) -> Checked:
    if entry.name.partition("/")[0] == entries.COMPILATIONS:
        return Checked(entry, None, "", "" if len(payload) > entries.SECONDS.size else "empty")
    stored, shared = entries.decoded(payload)
    return Checked(entry, stored, shared.by, "" if entry.name in entries.names_of(stored) else "name")


def abandoned(objects: Objects) -> list[Object]:
    """Return the files of writes that never ended."""
    before, folders = time.time() - _UNFINISHED_SECONDS, dict.fromkeys(folder for folder, _ in _KINDS.values())
    return [each for folder in folders for each in objects.unfinished(folder) if each.written < before]


def outdated(objects: Objects, found: list[Object], written_before: float, max_bytes: int | None) -> list[Object]:
    """Return the entries that are too old, and those of the least value until the rest has at most `max_bytes`.

    Args:
        objects: the storage.
        found: entries.
        written_before: entries from before this time are too old, in seconds since the epoch.
        max_bytes: the limit; None for no limit.
    """
    leaving = [entry for entry in found if entry.written < written_before]
    staying = [entry for entry in found if entry.written >= written_before]
    excess = -1 if max_bytes is None else sum(entry.nbytes for entry in staying) - max_bytes
    for entry in valued(objects, staying) if excess > 0 else ():
        if excess <= 0:
            break
        leaving.append(entry)
        excess -= entry.nbytes
    return leaving


def valued(objects: Objects, found: list[Object]) -> list[Object]:
    """Return entries, the least valuable first: by the seconds that making one took, its age, and its size.

    Reads a few bytes of each entry, and believes them: who can write to the storage can remove entries anyhow.
    """
    now = time.time()

    def value(entry: Object) -> float:
        data = objects.get(entry.name, signing.HEADER_BYTES + entries.SECONDS.size) or b""
        payload = data[signing.HEADER_BYTES :]
        seconds: float = entries.SECONDS.unpack(payload)[0] if len(payload) == entries.SECONDS.size else 0.0
        recency: float = 0.5 ** (max(0.0, now - entry.written) / HALF_LIFE_SECONDS)
        return seconds * recency / (entry.nbytes + OVERHEAD_BYTES)

    with ThreadPoolExecutor(_READERS) as readers:
        values = list(readers.map(value, found))
    return [found[at] for at in sorted(range(len(found)), key=lambda at: values[at])]


def remove(objects: Objects, leaving: Iterable[Object]) -> None:
    """Remove entries. Machines that use such a program keep their own copies."""
    for entry in leaving:
        objects.remove(entry.name)
