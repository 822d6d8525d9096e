"""Functions that combine several digests into one."""

from collections.abc import Iterable

from jitclient.core.digests import digest


class NotComparableError(Exception):
    """An error for a part of a jaxpr without an identity that two processes could compare."""


def combine(kind: bytes, *parts: bytes) -> bytes:
    """Return the digest of a kind of object and its parts, in order."""
    return digest(b"".join([b"%d:%s" % (len(part), part) for part in (kind, *parts)]))


def in_any_order(parts: Iterable[bytes]) -> bytes:
    """Return the digest of parts in any order. The number of occurrences of each part counts."""
    return combine(b"in any order", *sorted(parts))
