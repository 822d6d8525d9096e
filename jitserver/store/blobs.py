"""Bytes by their digest, each in a file: what is stored twice is there once."""

import contextlib
import logging
import os
import time
from collections.abc import Container, Iterator
from pathlib import Path

from jitclient.core.digests import digest
from jitserver.store import files
from jitserver.store.files import Corrupt

log = logging.getLogger(__name__)

_FRESH_SECONDS = 600.0
"""A younger file may belong to a row that another daemon is about to write."""

_ASIDE_SECONDS = 7 * 24 * 3600.0
"""For so long somebody may look at what was damaged."""


class Blobs:
    """A folder of such files. What turns out not to hold what was written is moved aside, and is then not there."""

    def __init__(self, folder: Path, quarantine: Path) -> None:
        self._folder = folder
        self._quarantine = quarantine
        for path in (folder, quarantine):
            path.mkdir(mode=0o700, exist_ok=True)

    def put(self, data: bytes) -> str:
        """Stores bytes under their digest, which it returns."""
        name = digest(data).hex()
        path = self._path(name)
        try:
            os.utime(path)  # and is so fresh that no other daemon takes it for left over
        except FileNotFoundError:
            files.write(path, [data])
        return name

    def get(self, name: str) -> memoryview | None:
        """The bytes; None where they are missing or damaged."""
        path = self._path(name)
        try:
            return files.read(path)
        except FileNotFoundError:
            return None
        except Corrupt as error:
            log.warning("%s: moved to %s; the program is compiled again when it is needed", error, self._quarantine)
            self.discard(name)
            return None

    def discard(self, name: str) -> None:
        """Moves bytes aside that are of no use."""
        with contextlib.suppress(OSError):
            self._path(name).replace(self._quarantine / name)

    def remove(self, name: str) -> None:
        """Deletes bytes, if they are there."""
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def sweep(self, known: Container[str]) -> int:
        """Deletes files that are not `known`, what interrupted writers left, and what was moved aside days ago; returns
        the bytes that were freed.
        """
        now = time.time()
        left = [
            entry for entry in _entries(self._folder) if entry.name not in known and _age(entry, now) > _FRESH_SECONDS
        ]
        left += [entry for entry in os.scandir(self._quarantine) if _age(entry, now) > _ASIDE_SECONDS]
        freed = 0
        for entry in left:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
                freed += entry.stat().st_size
        return freed

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    for inner in os.scandir(folder):
        with contextlib.suppress(OSError):
            yield from os.scandir(inner)


def _age(entry: "os.DirEntry[str]", now: float) -> float:
    """Seconds since it was written, used again or moved; none where it has gone meanwhile."""
    with contextlib.suppress(OSError):
        stat = entry.stat()  # is remembered with the entry
        return now - max(stat.st_mtime, stat.st_ctime)
    return 0.0
