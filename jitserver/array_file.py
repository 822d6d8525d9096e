"""A file of arrays, for the daemon that follows: one after the other, then what it is besides, then how long that is.

It has its name only once it is whole.
"""

import os
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jitserver.engine.spilling import Damaged

UNFINISHED = ".new"
_END = 12  # bytes: the length of the record, and its checksum
_encode = msgspec.msgpack.Encoder().encode
Record = TypeVar("Record")


def end_of(record: Any, mark: bytes) -> bytes:
    """What goes behind the arrays. `mark` tells what sort of file it is, and of which version."""
    body = _encode(record)
    return body + len(body).to_bytes(8, "little") + zlib.crc32(body).to_bytes(4, "little") + mark


def record_in(path: Path, kind: type[Record], mark: bytes) -> Record:
    """The record of a file.

    Raises:
        Damaged: it is not what was written, or another user or another version wrote it.
        OSError: it cannot be read.
    """
    if path.stat().st_uid != os.getuid():
        raise Damaged("it belongs to another user")
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _END - len(mark)))
        end = file.read()
        length, checksum = int.from_bytes(end[:8], "little"), end[8:_END]
        start = size - len(end) - length
        if end[_END:] != mark or start < 0:
            raise Damaged("it was cut short, or another version wrote it")
        file.seek(start)
        body = file.read(length)
    if zlib.crc32(body).to_bytes(4, "little") != checksum:
        raise Damaged("what it says of itself is not what was written")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Damaged(f"another version wrote it ({error})") from error
