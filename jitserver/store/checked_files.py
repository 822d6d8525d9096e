"""Atomic files with checksums: a file appears completely or not at all, and damage is detected when it is read."""

import contextlib
import errno
import os
import stat
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from jitclient.wire.encoding import decoded

_MAGIC = b"jitserv1"
TRAILER_BYTES = len(_MAGIC) + 4

# A link, a socket, or a device without a driver.
_ODD_FILES = (errno.ELOOP, errno.ENXIO, errno.ENODEV)

T = TypeVar("T")


class Corrupt(Exception):  # noqa: N818
    """Stored data is damaged, or was written by a different version."""


def write(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file with a checksum at its end. The file gets its name only after its content is on disk.

    Raises:
        OSError: the file cannot be written; the partial file is deleted.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with open(fd, "wb") as file:
            checksum = 0
            for chunk in chunks:
                checksum = zlib.crc32(chunk, checksum)
                file.write(chunk)
            file.write(_MAGIC + checksum.to_bytes(4, "little"))
            file.flush()
            sync(file.fileno())
        rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def read(path: Path, nbytes: int | None = None) -> memoryview:
    """Return the content of a regular file, without the checksum. Links are not followed.

    Args:
        path: the file.
        nbytes: the size of the content, if it is known: a file of another size is not read.

    Raises:
        Corrupt: the file is truncated, changed, of another kind, or was not written by `write`.
        OSError: the file cannot be read.
    """
    try:
        # A pipe must not block.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in _ODD_FILES:
            raise Corrupt(f"{path} is no regular file ({error.strerror})") from error
        raise
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Corrupt(f"{path} is no regular file")
        if nbytes is not None and found.st_size != nbytes + TRAILER_BYTES:
            raise Corrupt(f"{path} has {found.st_size:,} bytes, expected {nbytes + TRAILER_BYTES:,}")
        with open(fd, "rb", closefd=False) as file:
            data = memoryview(file.read(found.st_size))
    finally:
        os.close(fd)
    body, mark, checksum = data[:-TRAILER_BYTES], data[-TRAILER_BYTES:-4], data[-4:]
    if mark != _MAGIC or checksum != zlib.crc32(body).to_bytes(4, "little"):
        raise Corrupt(f"{path} is damaged (wrong checksum)")
    return body


def unpacked(data: bytes | memoryview, kind: type[T]) -> T:
    """Decode a stored message.

    Raises:
        Corrupt: the data is not a message of this type.
    """
    try:
        return decoded(data, kind)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the stored data is not a valid {kind.__name__} ({error})") from error


def sync(fd: int) -> None:
    """Wait until the data written to a file descriptor is on disk."""
    os.fsync(fd)


def rename(temporary: Path, path: Path) -> None:
    """Rename a file, and sync the directory so that the new name survives a power loss."""
    temporary.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
