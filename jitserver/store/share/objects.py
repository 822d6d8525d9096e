"""Named bytes on a storage that fsspec reads: a folder, a bucket, the memory of this process."""

import contextlib
import datetime
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jitclient.errors import SettingsError

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}")
"""Names of files that are not whole yet: a folder may hold hidden files of its owner."""


class Object(NamedTuple):
    """An object in a listing: its name, its size in bytes, and its time of writing in seconds since the epoch."""

    name: str
    nbytes: int
    written: float


class Objects:
    """Objects under a URL. Their names are relative paths with slashes.

    Methods raise what the storage raises: `OSError`, or exceptions of its own library.
    """

    def __init__(self, url: str) -> None:
        """Connect to the storage.

        Raises:
            SettingsError: fsspec, or the library for this kind of storage, is not installed.
        """
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise SettingsError("JITSERVER_SHARE needs fsspec. Run `pip install 'jitserver[share]'`.") from error
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise SettingsError(f"JITSERVER_SHARE={url!r}: {error}") from error
        # On others, writing is atomic: an object appears completely or not at all.
        self._is_local = "file" in (self._files.protocol if isinstance(self._files.protocol, tuple) else ())

    def get(self, name: str, max_bytes: int) -> bytes | None:
        """Return the first `max_bytes` bytes of an object; None if there is none."""
        try:
            found: bytes = self._files.cat_file(self._path(name), start=0, end=max_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found

    def has(self, name: str) -> bool:
        """Return whether there is an object of a name that has a byte or more.

        The `exists` of a bucket's library also looks for a folder of that name, which takes a listing.
        """
        return self.get(name, 1) is not None

    def put(self, name: str, data: bytes) -> None:
        """Write an object; one that has the name already is replaced."""
        if not self._is_local:
            self._files.pipe_file(self._path(name), data)
            return
        path = Path(self._path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{uuid.uuid4().hex}")
        try:
            # With the mode of any file that the user writes: other members of the group may be allowed to read it.
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def all(self, folder: str) -> Iterator[Object]:
        """Return the objects of a folder and the folders below. This lists the storage, which may take long."""
        return (found for found in self._found(folder) if not _is_temporary(found.name))

    def unfinished(self, folder: str) -> Iterator[Object]:
        """Return the files in a folder of writes that have not ended, or never will, as those of a killed process."""
        return (found for found in (self._found(folder) if self._is_local else ()) if _is_temporary(found.name))

    def _found(self, folder: str) -> Iterator[Object]:
        self._files.invalidate_cache()
        for path, info in self._files.find(self._path(folder), detail=True).items():
            name = path.removeprefix(self._root).lstrip("/")
            yield Object(name, int(info.get("size") or 0), _written(info))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(os.path.basename(name)) is not None


def _written(info: dict[str, Any]) -> float:
    for name in ("mtime", "LastModified", "updated", "last_modified", "created"):
        value = info.get(name)
        if isinstance(value, datetime.datetime):
            return value.timestamp()
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                return datetime.datetime.fromisoformat(value).timestamp()
    return 0.0
