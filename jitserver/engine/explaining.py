"""Why a call found no program: its key, taken apart, against those of the programs that are there."""

import hashlib

import msgspec

from jitclient.wire.explaining import Explain, Explained, KeyPart, Why, decode_parts, encode_parts
from jitclient.wire.messages import EntryInfo, Lookup
from jitserver.cache.makeup import Makeup, differences
from jitserver.cache.nearest import Known, nearest
from jitserver.cache.tiers import Tiers
from jitserver.engine import keys

_TOLD_HERE = ("packages", "process")
"""Rows of the table of keys that no client knows: mappings from names to texts."""


def makeup_of(lookup: Lookup, parts: bytes) -> Makeup:
    """What decides a lookup's key: `parts` are what the client tells of it, in words.

    Raises:
        msgspec.MsgspecError: `parts` are none.
    """
    rows = keys.parts(lookup)
    told = decode_parts(parts)
    for row in _TOLD_HERE:
        held = msgspec.msgpack.decode(rows[row], type=dict[str, str])
        told += [KeyPart(row, name, text.encode(), text) for name, text in held.items()]
    return Makeup({row: _digest(part) for row, part in rows.items()}, encode_parts(told))


def explained(cache: Tiers, request: Explain, refusal: str = "") -> Explained:
    """Whether the program of a lookup is there, and where it differs from the nearest other one of that name."""
    key = keys.call_key(request.lookup)
    return _against_nearest(cache, key, makeup_of(request.lookup, request.parts), request.name, refusal)


def why(cache: Tiers, request: Why) -> Explained | None:
    """Where a program differs from another, or from the nearest other one; None if one of them is not there."""
    known = cache.get(request.key)
    if known is None:
        return None
    if not request.other:
        return _against_nearest(cache, known.key, known.makeup, known.info.name, "")
    other = cache.get(request.other)
    if other is None:
        return None
    return Explained(known.key, known.info, other.info, differences(other.makeup, known.makeup))


def _against_nearest(cache: Tiers, key: str, makeup: Makeup, name: str, refusal: str) -> Explained:
    found = cache.get(key)
    others = [known for known in cache.named(name) if known.key != key]
    if found is not None:  # what was made later is no reason for having made this one
        others = [known for known in others if known.info.created < found.info.created] or others
    closest, differ = nearest(makeup, others)
    return Explained(key, _info(found), _info(closest), differ, refusal)


def _info(known: Known | None) -> EntryInfo | None:
    return known.info if known is not None else None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
