"""Files that are there whole or not at all, whatever happens while they are written; and what is not as written."""

import contextlib
import os
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from jitclient.wire.encoding import decoded

_MARK = b"jitserv1"
_TAIL = len(_MARK) + 4

T = TypeVar("T")


class Corrupt(Exception):  # noqa: N818
    """What is stored is not what was written, or another version wrote it."""


def write(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Writes a file with a checksum at its end; under its name it appears only once it is on the disk.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    fresh = Path(name)
    try:
        with open(handle, "wb") as file:
            checksum = 0
            for chunk in chunks:
                checksum = zlib.crc32(chunk, checksum)
                file.write(chunk)
            file.write(_MARK + checksum.to_bytes(4, "little"))
            file.flush()
            sync(file.fileno())
        rename(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def read(path: Path) -> memoryview:
    """What was written.

    Raises:
        Corrupt: the file was cut short, changed, or is none of ours.
        OSError: it cannot be read.
    """
    data = memoryview(path.read_bytes())
    body, mark, checksum = data[:-_TAIL], data[-_TAIL:-4], data[-4:]
    if mark != _MARK or checksum != zlib.crc32(body).to_bytes(4, "little"):
        raise Corrupt(f"{path} does not hold what was written to it")
    return body


def unpacked(data: bytes | memoryview, kind: type[T]) -> T:
    """The message of that type that was stored; Corrupt if the data is none."""
    try:
        return decoded(data, kind)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"no {kind.__name__} is stored there: {error}") from error


def sync(handle: int) -> None:
    """Waits until the disk has what was written."""
    os.fsync(handle)


def rename(fresh: Path, path: Path) -> None:
    """Gives a file its name, also for after a loss of power."""
    fresh.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
