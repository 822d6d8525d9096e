"""Gives to machines that have nothing yet all that a script used on another one, through the lab's cache."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from jitclient.core.digests import digest
from jitclient.errors import ArchiveRefused
from jitserver.store import archive
from jitserver.store.archive import Moved
from jitserver.store.checked_files import Corrupt, unpacked
from jitserver.store.disk import Store
from jitserver.store.last_use import LastUse
from jitserver.store.share import entries, signing
from jitserver.store.share.entries import SECONDS, SharedScript
from jitserver.store.share.objects import Objects
from jitserver.store.share.share import MAX_ENTRY_BYTES, member
from jitserver.store.share.signing import Rejected

_MAX_MACHINES = 8
"""Maximum number of kinds of machines of which the entries of a script are read, the newest first."""


class Pushed(NamedTuple):
    """An uploaded entry: what it has, its size, and the seconds that it saves others."""

    moved: Moved
    nbytes: int
    seconds: float


class Pulled(NamedTuple):
    """A downloaded entry: what this machine did not have, and who has made it; or why it is left out."""

    moved: Moved
    by: str
    problem: str = ""


def push(objects: Objects, key: bytes, directory: Path, used: LastUse) -> Pushed:
    """Upload what a script used, in place of its earlier entry of this kind of machine.

    Args:
        objects: the storage.
        key: the secret of the project.
        directory: the cache directory of this environment.
        used: what the script used.

    Raises:
        OverflowError: it is too large for an entry.
        Exception: the storage fails.
    """
    machines: set[str] = set()
    seconds = [0.0]

    def members() -> Iterator[tuple[str, bytes]]:
        store = Store(directory, 1 << 62)
        for stored in filter(None, map(store.get, used.programs)):
            executable = store.blob(stored.executable)
            machines.add(repr(sorted(dict(stored.info.context).items())))
            seconds.append(sum(stored.info.seconds.values()))
            yield archive.program(entries.public(stored), bytes(executable or b""))
        store.close()
        yield from archive.compilations(directory, used.compilations)

    with tempfile.TemporaryDirectory(prefix="jitserver-share-") as folder:
        file = Path(folder, "archive")
        moved = archive.write(file, members())
        shared = SharedScript(used.script, member(), file.read_bytes())
    payload = SECONDS.pack(sum(seconds)) + msgspec.msgpack.encode(shared)
    if len(payload) > MAX_ENTRY_BYTES:
        raise OverflowError(f"what {used.script} used has {len(payload):,} bytes, more than an entry may have")
    name = entries.script_name(_versions(), used.script, digest(repr(sorted(machines)).encode()).hex())
    objects.put(name, signing.signed(key, name, payload))
    return Pushed(moved, len(payload), sum(seconds))


def pull(objects: Objects, key: bytes, directory: Path, script: str, max_bytes: int) -> Iterator[Pulled]:
    """Download what a script used on machines of each kind into a cache directory, and yield what was new in it.

    Args:
        objects: the storage.
        key: the secret of the project.
        directory: the cache directory of this environment, which a daemon may use at the same time.
        script: the name of the script.
        max_bytes: limit of the cache on the disk.

    Raises:
        OSError: the cache cannot be written.
        Exception: the storage fails.
    """
    found = sorted(objects.all(entries.scripts_folder(_versions(), script)), key=lambda entry: -entry.written)
    for entry in found[:_MAX_MACHINES]:
        data = objects.get(entry.name, min(entry.nbytes, MAX_ENTRY_BYTES))
        if data is None:  # another member has removed it
            continue
        try:
            yield _imported(signing.verified(key, entry.name, data), directory, max_bytes)
        # No member has written it, another version has, or it is of another kind of machine and too large.
        except (Rejected, Corrupt, ArchiveRefused) as error:
            yield Pulled(Moved(0, 0), "", f"{type(error).__name__}: {error}")


def _imported(payload: memoryview, directory: Path, max_bytes: int) -> Pulled:
    shared = decoded(payload)
    with tempfile.TemporaryDirectory(prefix="jitserver-share-") as folder:
        file = Path(folder, "archive")
        file.write_bytes(shared.archive)
        return Pulled(archive.import_cache(file, directory, max_bytes), shared.by)


def decoded(payload: memoryview) -> SharedScript:
    """Return the entry of a script.

    Raises:
        Corrupt: it was written by another version.
    """
    return unpacked(payload[SECONDS.size :], SharedScript)


def _versions() -> str:
    """Return a digest of the versions on which archives depend."""
    return digest(repr(sorted(archive.versions().items())).encode()).hex()
