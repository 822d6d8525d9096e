"""The digests by which we name and compare things: all are made here, and the cache on the disk knows them."""

import hashlib
from io import BufferedReader

_Data = bytes | bytearray | memoryview


def digest(data: _Data, size: int = 16) -> bytes:
    """The BLAKE2b digest, of so many bytes."""
    return hashlib.blake2b(data, digest_size=size).digest()


def file_digest(file: BufferedReader) -> bytes:
    """The same digest of a file, which need not fit into memory."""
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()


def array_digest(data: _Data) -> bytes:
    """The SHA-256 digest, for large arrays: processors have instructions for it, and take less than half the time."""
    return hashlib.sha256(data).digest()
