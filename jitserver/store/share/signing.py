"""Signatures of entries. Nothing of an entry is decoded before its signature was checked.

The signature covers the entry's name, so an entry under another name is rejected.
"""

from jitclient.core.digests import SIGNATURE_BYTES, is_signature, signature

_MAGIC = b"jitshare"
HEADER_BYTES = len(_MAGIC) + SIGNATURE_BYTES
"""Bytes before the payload of an entry."""


class Rejected(Exception):  # noqa: N818
    """An entry is not used; the message is the kind of the reason."""


def signed(key: bytes, name: str, payload: bytes) -> bytes:
    """Return an entry with its signature."""
    return _MAGIC + signature(key, name, payload) + payload


def verified(key: bytes, name: str, entry: bytes) -> memoryview:
    """Return the payload of an entry.

    Raises:
        Rejected: no member of the project has written this entry under this name.
    """
    view = memoryview(entry)
    if bytes(view[: len(_MAGIC)]) != _MAGIC or len(view) < HEADER_BYTES:
        raise Rejected("unsigned")
    payload = view[HEADER_BYTES:]
    if not is_signature(key, name, payload, view[len(_MAGIC) : HEADER_BYTES]):
        raise Rejected("signature")
    return payload
