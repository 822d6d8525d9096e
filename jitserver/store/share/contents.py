"""Care for the lab's cache from the command line: what is there, what is valid, and what may go."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jitserver.store.checked_files import Corrupt
from jitserver.store.entry import Stored
from jitserver.store.share import entries, signing
from jitserver.store.share.objects import Object, Objects
from jitserver.store.share.signing import Rejected


class Checked(NamedTuple):
    """An entry of a program: its object, the program and who has made it; or why it is not valid."""

    entry: Object
    program: Stored | None
    by: str
    problem: str


def programs(objects: Objects) -> list[Object]:
    """Return the entries of programs of this version, the oldest first."""
    found = (entry for entry in objects.all(entries.FOLDER) if entry.name.endswith(f"/{entries.PROGRAM}"))
    return sorted(found, key=lambda entry: entry.written)


def checked(objects: Objects, key: bytes, each: Iterable[Object]) -> Iterator[Checked]:
    """Read entries, and yield what they are."""
    for entry in each:
        data = objects.get(entry.name, entry.nbytes)
        if data is None:  # another member has removed it
            continue
        try:
            stored, shared = entries.decoded(signing.verified(key, entry.name, data))
        except (Rejected, Corrupt) as error:
            reason = str(error) if isinstance(error, Rejected) else "version"
            yield Checked(entry, None, "", reason)
        else:
            wrong = entries.program_name(stored.info.key) != entry.name
            yield Checked(entry, stored, shared.by, "name" if wrong else "")


def outdated(found: list[Object], written_before: float, max_bytes: int | None) -> list[Object]:
    """Return the entries that are too old, and the oldest of the others until the rest has at most `max_bytes`.

    Args:
        found: entries, the oldest first.
        written_before: entries from before this time are too old, in seconds since the epoch.
        max_bytes: the limit; None for no limit.
    """
    leaving = []
    total = sum(entry.nbytes for entry in found)
    for entry in found:
        if entry.written < written_before or (max_bytes is not None and total > max_bytes):
            leaving.append(entry)
            total -= entry.nbytes
    return leaving


def remove(objects: Objects, leaving: Iterable[Object]) -> None:
    """Remove entries. Machines that use such a program keep their own copies."""
    for entry in leaving:
        objects.remove(entry.name)
