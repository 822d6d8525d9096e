"""Kept trees to disk and back, where one daemon follows another at the same address.

A file for each name. The arrays are read when somebody asks for them.
"""

import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from jitclient.errors import SettingsError
from jitclient.wire.address import private_folder
from jitclient.wire.messages import Spec
from jitserver import array_file
from jitserver.cache import folder
from jitserver.engine import arrays, spilling
from jitserver.engine.spilling import Damaged, Stored
from jitserver.kept import Kept, KeptTree

log = logging.getLogger(__name__)

Place = tuple[str, float, int]
"""Where an array is kept: the name, when that came to hold its tree, and the leaf of that."""

_MARK = b"jitserver kept 2\n"


class Record(msgspec.Struct, array_like=True):
    """What stands behind the arrays in a file. `leaves` are positions among them: several may be one array."""

    name: str
    key: str
    specs: tuple[Spec, ...]
    tree: bytes
    label: str
    ttl: float | None
    created: float
    last_used: float
    arrays: list[Stored]
    leaves: list[int]


@dataclasses.dataclass(frozen=True)
class InFile:
    """The arrays of a tree while they are in its file."""

    path: Path
    record: Record

    def load(self) -> list[Any]:
        """Has them back; the file is gone then.

        Raises:
            OSError, Damaged: they cannot be read.
            Incompatible: there are fewer devices than they lay on.
        """
        with open(self.path, "rb") as file:
            found = [spilling.read(file, stored) for stored in self.record.arrays]
        for array in found:
            arrays.share(array)
        self.discard()
        return [found[position] for position in self.record.leaves]

    def discard(self) -> None:
        """Removes the file."""
        with contextlib.suppress(OSError):
            self.path.unlink()


def leave(address: str, kept: Kept, deadline: float) -> dict[int, Place]:
    """Leaves what is kept for the next daemon at an address, as far as there is room and time until `deadline`.

    Returns:
        Where each array is that was written, by its `id`.
    """
    if not kept:
        return {}
    try:
        return save(_folder_of(address), kept, deadline)
    except (SettingsError, OSError) as error:
        log.warning("what is kept is lost: it cannot be written: %s", error)
        return {}


def take_back(address: str, kept: Kept) -> None:
    """Goes on with what the daemon before kept at an address."""
    try:
        kept.take_back(taken_back(_folder_of(address)))
    except (SettingsError, OSError) as error:
        log.warning("what the daemon before kept cannot be taken back: %s", error)


def _folder_of(address: str) -> Path:
    return private_folder(private_folder(folder.part() / "kept") / _digest(address))


def save(where: Path, kept: Kept, deadline: float) -> dict[int, Place]:
    """Writes what is kept and not on the disk; returns where each array is that was written."""
    places: dict[int, Place] = {}
    for name, tree in kept.all().items():
        if tree.away is not None:
            continue  # nobody came for it since it was written
        path = where / _digest(name)
        fresh = path.with_suffix(array_file.UNFINISHED)
        try:
            with open(fresh, "wb") as file:
                _write(file, name, tree, deadline)
            fresh.rename(path)
        except Exception as error:  # what computes an array may have failed, for whatever reason
            log.warning("what is kept as %r is lost: it cannot be written: %s", name, error)
            with contextlib.suppress(OSError):
                fresh.unlink()
        else:
            places |= {id(array): (name, tree.created, leaf) for leaf, array in enumerate(tree.arrays)}
    return places


def _write(file: BinaryIO, name: str, tree: KeptTree, deadline: float) -> None:
    distinct = list({id(array): array for array in tree.arrays}.values())
    places = {id(array): position for position, array in enumerate(distinct)}
    record = Record(
        name=name,
        key=tree.key,
        specs=tree.specs,
        tree=tree.tree,
        label=tree.label,
        ttl=tree.ttl,
        created=tree.created,
        last_used=tree.last_used,
        arrays=[spilling.write(file, array, deadline) for array in distinct],
        leaves=[places[id(array)] for array in tree.arrays],
    )
    file.write(array_file.end_of(record, _MARK))


def taken_back(where: Path) -> Iterator[tuple[str, KeptTree]]:
    """What the daemon before left there, by name. What is damaged is removed."""
    for path in sorted(where.iterdir()):
        if path.suffix == array_file.UNFINISHED:
            path.unlink(missing_ok=True)
            continue
        try:
            found = array_file.record_in(path, Record, _MARK)
        except (Damaged, OSError) as error:
            log.warning("a tree that the daemon before kept is lost: %s: %s", path, error)
            path.unlink(missing_ok=True)
            continue
        tree = KeptTree(found.key, found.specs, found.tree, found.label, (), found.ttl, found.created, found.last_used)
        tree.away = InFile(path, found)
        yield found.name, tree


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()
