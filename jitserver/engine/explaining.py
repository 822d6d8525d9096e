"""Why a call found no program: compares the components of its key with those of existing programs."""

import hashlib

from jitclient.wire.decoders import decoded
from jitclient.wire.explaining import Explain, Explained, KeyPart, decode_parts, encode_parts
from jitclient.wire.messages import Lookup
from jitserver.cache.call_key import Makeup
from jitserver.cache.tiers import Tiers
from jitserver.cache.why import against_nearest
from jitserver.engine import keys

_TOLD_HERE = ("packages", "process")
"""Components of a key that only the daemon knows: mappings from names to texts."""


def makeup_of(lookup: Lookup, parts: bytes) -> Makeup:
    """The components of a lookup's key. `parts` are the client's descriptions of them.

    Raises:
        msgspec.MsgspecError: `parts` are invalid.
    """
    rows = keys.parts(lookup)
    told = decode_parts(parts)
    for row in _TOLD_HERE:
        held = decoded(rows[row], dict[str, str])
        told += [KeyPart(row, name, text.encode(), text) for name, text in held.items()]
    return Makeup({row: _digest(part) for row, part in rows.items()}, encode_parts(told))


def explained(cache: Tiers, request: Explain, refusal: str = "") -> Explained:
    """Whether the program of a lookup exists, and how it differs from the most similar one with that name."""
    key = keys.call_key(request.lookup)
    makeup = makeup_of(request.lookup, request.parts)
    return against_nearest(cache.get, cache.named, key, makeup, request.name, refusal)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
