"""Digests that identify and compare data. All are made here, because the cache on disk depends on their algorithms."""

import hashlib
from io import BufferedReader

_Data = bytes | bytearray | memoryview


def digest(data: _Data, size: int = 16) -> bytes:
    """Return the BLAKE2b digest of `data`, `size` bytes long."""
    return hashlib.blake2b(data, digest_size=size).digest()


def file_digest(file: BufferedReader) -> bytes:
    """Return the 16-byte BLAKE2b digest of a file, without reading the whole file into memory."""
    return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()


def array_digest(data: _Data) -> bytes:
    """Return the SHA-256 digest of a large array: with the processor's instructions, it takes under half the time."""
    return hashlib.sha256(data).digest()


SIGNATURE_BYTES = 32
"""Length of a signature in bytes."""


def signature(key: bytes, name: str, data: _Data) -> bytes:
    """Return the HMAC-SHA256 (RFC 2104) of data that has a name: only a holder of the key can have made it."""
    import hmac  # only daemons need it

    code = hmac.new(key, name.encode() + b"\0", hashlib.sha256)
    code.update(data)
    return code.digest()


def is_signature(key: bytes, name: str, data: _Data, found: _Data) -> bool:
    """Return whether `found` is the signature of data. The time that this takes tells nothing about the right one."""
    import hmac

    return hmac.compare_digest(signature(key, name, data), found)
