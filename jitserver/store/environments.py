"""The cache directories of a user's environments, which share one limit on the disk.

The limit counts the blocks of all files, as `du` does. Over the limit, directories of environments that no longer exist
are deleted first, then the programs and compilations that were not used for the longest time. A daemon changes no
directory that another daemon uses: it evicts its own programs, and those of environments without a daemon.
"""

import contextlib
import itertools
import logging
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from jitclient.core.directories import compilations_directory, environment_of
from jitclient.wire.introspection import EntryInfo
from jitserver.store.catalog import CATALOG, Catalog
from jitserver.store.checked_files import Corrupt
from jitserver.store.eviction_log import EvictionLog

log = logging.getLogger(__name__)

BLOBS = "blobs"
"""Name of the directory of blobs in a cache directory."""

_DIGEST = re.compile("[0-9a-f]{12}")
_TRIM_FRACTION = 0.9
_BLOCK_BYTES = 512
_UNREADABLE = (OSError, sqlite3.Error, UnicodeDecodeError, Corrupt)


class _Evictable(NamedTuple):
    """A program by its key, or a file by its path, which may leave a cache directory."""

    last_used: float
    nbytes: int
    directory: Path
    key: str


def cache_directories(root: Path) -> list[Path]:
    """Return the cache directories of all environments."""
    return sorted(path for path in root.iterdir() if _DIGEST.fullmatch(path.name)) if root.is_dir() else []


def is_missing(directory: Path) -> bool:
    """Return whether the environment of a cache directory no longer exists; False if it is unknown."""
    environment = environment_of(directory)
    return environment is not None and not (environment / "bin").exists()


def disk_bytes(path: Path) -> int:
    """Return the bytes that a file, or a directory with all that it contains, takes on the disk."""
    names, total = [os.fspath(path)], 0
    for folder, inner, files in os.walk(path) if not path.is_symlink() else ():
        names += [os.path.join(folder, name) for name in (*inner, *files)]
    for name in names:
        # Other processes delete files at any time.
        with contextlib.suppress(OSError):
            total += os.lstat(name).st_blocks * _BLOCK_BYTES
    return total


class SharedLimit:
    """The limit on the cache directories of all environments together.

    Attributes:
        other_bytes: the bytes on the disk of the other environments' directories when they were last measured.
        room: the bytes that may be written until the directories must be measured again.
        unmeasured_bytes: the bytes that were written since then.
    """

    def __init__(self, own: Path, max_bytes: int, is_in_use: Callable[[Path], bool]) -> None:
        """Measure nothing yet.

        Args:
            own: the cache directory of this environment.
            max_bytes: the limit.
            is_in_use: returns whether a daemon uses a cache directory.
        """
        self.max_bytes = max_bytes
        self.other_bytes = 0
        self.room = 0
        self.unmeasured_bytes = 0
        self._own = own
        self._is_in_use = is_in_use

    def enforce(
        self, programs: Callable[[], Iterable[EntryInfo]], evict: Callable[[list[str]], None], evictions: EvictionLog
    ) -> int:
        """Delete what was not used for the longest time until all directories are within the limit.

        A quarter of the limit is left to this environment, however much others use.

        Args:
            programs: returns the programs of this environment that may be evicted.
            evict: evicts programs of this environment by their keys.
            evictions: logs how many left the others.

        Returns:
            The number of bytes freed.
        """
        before = self._measure()
        if before <= self.max_bytes:
            return 0
        for directory in self._idle():
            if is_missing(directory) and self._measure() > self.max_bytes:
                log.info("disk cache: deleted %s, because its environment no longer exists", directory)
                shutil.rmtree(directory, ignore_errors=True)
        excess = self._measure() - self.max_bytes * _TRIM_FRACTION
        spare = disk_bytes(self._own) - self.max_bytes // 4
        leaving: dict[Path, list[str]] = {}
        own = (_Evictable(each.last_used, each.disk_bytes, self._own, each.key) for each in programs())
        for candidate in sorted([*own, *itertools.chain.from_iterable(map(_candidates, self._idle()))]):
            if excess <= 0:
                break
            if candidate.directory == self._own:
                if spare <= 0:
                    continue
                spare -= candidate.nbytes
            excess -= candidate.nbytes
            leaving.setdefault(candidate.directory, []).append(candidate.key)
        for directory, keys in leaving.items():
            if directory == self._own:
                evict(keys)
            else:
                _evict(directory, keys)
                evictions.add(directory, len(keys))
        return max(0, before - self._measure())

    def _measure(self) -> int:
        """Return the bytes of all directories on the disk."""
        self.unmeasured_bytes = 0
        self.other_bytes = sum(map(disk_bytes, self._others()))
        total = self.other_bytes + disk_bytes(self._own)
        # If others use all of it, do not measure at each write.
        self.room = max(self.max_bytes - total, self.max_bytes // 20)
        return total

    def _others(self) -> list[Path]:
        return [path for path in cache_directories(self._own.parent) if path != self._own]

    def _idle(self) -> list[Path]:
        return [path for path in self._others() if not self._is_in_use(path)]


def _candidates(directory: Path) -> list[_Evictable]:
    """Return the programs and compilations in a cache directory that no daemon uses."""
    files: Iterable[Path] = compilations_directory(directory).glob("*")
    programs: list[EntryInfo] = []
    try:
        with _catalog(directory) as catalog:
            programs = [info for info in catalog.infos() if not info.pinned]
    except _UNREADABLE:
        # The catalog of another version does not say when a blob was last used: the file's time counts.
        files = itertools.chain(files, (directory / BLOBS).glob("*/*"))
    found = [_Evictable(info.last_used, info.disk_bytes, directory, info.key) for info in programs]
    return [*found, *_files(directory, files)]


def _files(directory: Path, paths: Iterable[Path]) -> Iterator[_Evictable]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield _Evictable(path.stat().st_mtime, disk_bytes(path), directory, os.fspath(path))


def _evict(directory: Path, keys: list[str]) -> None:
    files = [Path(key) for key in keys if os.path.isabs(key)]
    programs = [key for key in keys if not os.path.isabs(key)]
    with contextlib.suppress(*_UNREADABLE):
        if programs:
            with _catalog(directory) as catalog:
                files += [directory / BLOBS / digest[:2] / digest for digest in catalog.remove(programs)]
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()


def _catalog(directory: Path) -> contextlib.closing[Catalog]:
    """Open the catalog of another environment, which must exist.

    Raises:
        OSError, sqlite3.Error, Corrupt: there is none that this version can read.
    """
    path = directory / CATALOG
    path.stat()
    return contextlib.closing(Catalog(path))
