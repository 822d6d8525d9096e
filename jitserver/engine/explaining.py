"""Why a call found no program: its key, taken apart, against those of the programs that are there."""

import hashlib

import msgspec

from jitclient.wire.explaining import Explain, Explained, KeyPart, Why, decode_parts, encode_parts
from jitclient.wire.messages import EntryInfo, Lookup
from jitserver.cache.entry import Entry
from jitserver.cache.makeup import Makeup, differences
from jitserver.cache.memory import Memory
from jitserver.cache.nearest import nearest
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


def explained(entries: Memory, request: Explain, refusal: str = "") -> Explained:
    """Whether the program of a lookup is there, and where it differs from the nearest other one of that name."""
    key = keys.call_key(request.lookup)
    return _against_nearest(entries, key, makeup_of(request.lookup, request.parts), request.name, refusal)


def why(entries: Memory, request: Why) -> Explained | None:
    """Where a program differs from another, or from the nearest other one; None if one of them is not there."""
    entry = _of_key(entries, request.key)
    if entry is None:
        return None
    if not request.other:
        return _against_nearest(entries, entry.key, entry.makeup, entry.info.name, "")
    other = _of_key(entries, request.other)
    if other is None:
        return None
    return Explained(entry.key, entry.info, other.info, differences(other.makeup, entry.makeup))


def _against_nearest(entries: Memory, key: str, makeup: Makeup, name: str, refusal: str) -> Explained:
    found = _of_key(entries, key)
    others = [entry for entry in entries.matching(name) if entry.info.name == name and entry.key != key]
    if found is not None:  # what was made later is no reason for having made this one
        others = [entry for entry in others if entry.info.created < found.info.created] or others
    others.sort(key=lambda entry: -entry.info.last_used)
    entry, differ = nearest(makeup, others)
    return Explained(key, _info(found), _info(entry), differ, refusal)


def _of_key(entries: Memory, key: str) -> Entry | None:
    return next((entry for entry in entries.matching(key) if entry.key == key), None)


def _info(entry: Entry | None) -> EntryInfo | None:
    return entry.info if entry is not None else None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
