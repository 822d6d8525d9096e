"""How digests are joined to one."""

from collections.abc import Iterable

from jitclient.core.digests import digest


class NotComparableError(Exception):
    """Something has no identity that two processes could compare."""


def combine(kind: bytes, *parts: bytes) -> bytes:
    """Return the digest of a kind of thing and its parts, in order."""
    return digest(b"".join([b"%d:%s" % (len(part), part) for part in (kind, *parts)]))


def in_any_order(parts: Iterable[bytes]) -> bytes:
    """Return the digest of parts whose order does not count. How often each is there does."""
    return combine(b"in any order", *sorted(parts))
