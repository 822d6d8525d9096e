"""The call key: a digest of labelled components, so that a miss can be explained by the one that differs."""

import hashlib

import msgspec

from jitclient.wire.messages import Lookup
from jitserver.engine import context

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def parts(lookup: Lookup) -> dict[str, bytes]:
    """All components of the call key, by label."""
    signature = lookup.signature
    made = {
        "capture": lookup.capture_key.encode(),
        "tree": _encode(signature.tree),
        "leaves": _encode(signature.leaves),
        "statics": _encode(signature.statics),
        "donated": _encode(signature.donated),
        "options": _encode(signature.options),
        "settings": _encode(signature.context),
        "packages": _encode(context.packages().versions(lookup.packages)),
        "process": _encode(context.of_process()),
    }
    if signature.shardings is not None:
        made["shardings"] = _encode(signature.shardings)
    return made


def call_key(lookup: Lookup) -> str:
    """The digest under which the program is cached."""
    digest = hashlib.blake2b(digest_size=16)
    for label, part in parts(lookup).items():
        digest.update(f"{label}:{len(part)}:".encode())
        digest.update(part)
    return digest.hexdigest()
