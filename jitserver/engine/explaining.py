"""Why a call found no program: its key, taken apart, against those of the programs that are there."""

from jitclient.digests import digest
from jitclient.wire.decoders import decoded
from jitclient.wire.explaining import Explain, Explained, KeyPart, decode_parts, encode_parts
from jitserver.cache.call_key import Makeup
from jitserver.cache.tiers import Tiers
from jitserver.cache.why import against_nearest
from jitserver.engine.keys import CallKey

_TOLD_HERE = ("packages", "process")
"""Rows of the table of keys that no client knows: mappings from names to texts."""


def makeup_of(key: CallKey, parts: bytes) -> Makeup:
    """What decides a key: `parts` are what the client tells of it, in words.

    Raises:
        msgspec.MsgspecError: `parts` are none.
    """
    told = decode_parts(parts)
    for row in _TOLD_HERE:
        held = decoded(key.rows[row], dict[str, str])
        told += [KeyPart(row, name, text.encode(), text) for name, text in held.items()]
    return Makeup({row: digest(part) for row, part in key.rows.items()}, encode_parts(told))


def explained(cache: Tiers, key: CallKey, request: Explain, refusal: str = "") -> Explained:
    """Whether the program of a lookup is there, and where it differs from the nearest other one of that name."""
    makeup = makeup_of(key, request.parts)
    return against_nearest(cache.get, cache.named, key.text, makeup, request.name, refusal)
