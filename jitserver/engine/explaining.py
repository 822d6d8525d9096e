"""Why a call found no program: compares the components of its key with those of existing programs."""

from jitclient.digests import digest
from jitclient.wire.decoders import decoded
from jitclient.wire.explaining import Explain, Explained, KeyPart, decode_parts, encode_parts
from jitserver.cache.entry import Makeup
from jitserver.cache.tiers import Tiers
from jitserver.cache.why import against_nearest
from jitserver.engine.keys import CallKey

_TOLD_HERE = ("packages", "process")
"""Components of a key that only the daemon knows: mappings from names to texts."""


def makeup_of(key: CallKey, parts: bytes) -> Makeup:
    """The components of a key. `parts` are the client's descriptions of them.

    Raises:
        msgspec.MsgspecError: `parts` are invalid.
    """
    told = decode_parts(parts)
    for row in _TOLD_HERE:
        held = decoded(key.rows[row], dict[str, str])
        told += [KeyPart(row, name, text.encode(), text) for name, text in held.items()]
    return Makeup({row: digest(part) for row, part in key.rows.items()}, encode_parts(told))


def explained(cache: Tiers, key: CallKey, request: Explain, refusal: str = "") -> Explained:
    """Whether the program of a lookup exists, and how it differs from the most similar one with that name."""
    makeup = makeup_of(key, request.parts)
    return against_nearest(cache.get, cache.named, key.text, makeup, request.name, refusal)
