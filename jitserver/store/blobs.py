"""Content-addressed files: byte strings stored under their digest, so that equal contents share one file."""

import contextlib
import logging
import os
import stat
import time
from collections.abc import Container, Iterator
from pathlib import Path

from jitclient.core.digests import digest
from jitserver.store import checked_files
from jitserver.store.checked_files import Corrupt

log = logging.getLogger(__name__)

_FRESH_SECONDS = 600.0
"""Minimum age in seconds at which a file without a row may be deleted.

Another daemon may still have to write the catalog row of a younger file.
"""

_QUARANTINE_SECONDS = 7 * 24 * 3600.0
"""Seconds for which a damaged file stays in quarantine, so that users can inspect it."""


class Blobs:
    """A directory of content-addressed files.

    A file whose content is damaged is moved to the quarantine directory, and counts as missing from then on.
    """

    def __init__(self, directory: Path, quarantine: Path) -> None:
        self._directory = directory
        self._quarantine = quarantine
        for path in (directory, quarantine):
            # A cache that can only be read may lack them.
            with contextlib.suppress(OSError):
                path.mkdir(mode=0o700)

    def put(self, data: bytes) -> str:
        """Store bytes, and return their digest in hexadecimal."""
        name = digest(data).hex()
        path = self._path(name)
        for at, is_kind in ((path.parent, stat.S_ISDIR), (path, stat.S_ISREG)):
            with contextlib.suppress(FileNotFoundError):
                if not is_kind(at.lstat().st_mode):
                    self._discard(at)
        try:
            # A fresh modification time keeps the `sweep` of other daemons from deleting the file as a leftover.
            os.utime(path)
        except FileNotFoundError:
            checked_files.write(path, [data])
        return name

    def get(self, name: str, nbytes: int | None = None) -> memoryview | None:
        """Return the bytes of a digest; None if they are missing, damaged or others.

        Args:
            name: the digest.
            nbytes: the number of bytes, if it is known.
        """
        path = self._path(name)
        try:
            data = checked_files.read(path, nbytes)
            # The file's own checksum only says that it is some whole file.
            if digest(data).hex() != name:
                raise Corrupt(f"{path} has the content of another file")
            return data
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Corrupt as error:
            log.warning(
                "disk cache: %s. The file was moved to %s; its program is compiled again when needed.",
                *(error, self._quarantine),
            )
            self.discard(name)
            return None

    def discard(self, name: str) -> None:
        """Move the file of an unusable blob to quarantine."""
        self._discard(self._path(name))

    def remove(self, name: str) -> None:
        """Delete the file of a digest, if it exists."""
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def sweep(self, known: Container[str]) -> int:
        """Delete unknown files, leftovers of interrupted writers, and expired files in quarantine.

        Args:
            known: the digests whose files stay. Fresh files stay, too.

        Returns:
            The number of bytes freed.
        """
        now = time.time()
        left = [
            entry
            for entry in _entries(self._directory)
            if entry.name not in known and _age(entry, now) > _FRESH_SECONDS
        ]
        left += [entry for entry in os.scandir(self._quarantine) if _age(entry, now) > _QUARANTINE_SECONDS]
        freed = 0
        for entry in left:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
                freed += entry.stat().st_size
        return freed

    def _discard(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.replace(self._quarantine / path.name)

    def _path(self, name: str) -> Path:
        return self._directory / name[:2] / name


def _entries(directory: Path) -> Iterator["os.DirEntry[str]"]:
    for inner in os.scandir(directory):
        with contextlib.suppress(OSError):
            yield from os.scandir(inner)


def _age(entry: "os.DirEntry[str]", now: float) -> float:
    """Return the seconds since the file was written, reused or moved; 0 if it no longer exists."""
    with contextlib.suppress(OSError):
        # Cached in the entry: a later `stat` works after the file is deleted.
        stat = entry.stat()
        return now - max(stat.st_mtime, stat.st_ctime)
    return 0.0
