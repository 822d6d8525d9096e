"""The call key: a digest of labelled components, so that a miss can be explained by the component that differs."""

import dataclasses
from collections.abc import Mapping

import msgspec

from jitclient.core.digests import digest
from jitclient.wire.messages import Lookup, Manifest
from jitserver.programs import context
from jitserver.store.entry import MACHINE, MANIFEST, KeyComponents

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclasses.dataclass(frozen=True)
class CallKey:
    """The call key of a program, computed once for each request.

    Attributes:
        text: the digest of all rows, under which the program is cached.
        rows: all components of the key, by label.
        base: the digest of the rows without the manifest.
    """

    text: str
    rows: Mapping[str, bytes]
    base: str

    def under(self, manifest: Manifest | None) -> "CallKey":
        """Return the key for processes with this manifest."""
        if manifest is None or not manifest.names:
            return self
        rows = {**self.rows, MANIFEST: _encode(manifest)}
        return CallKey(_digest(rows), rows, self.base)

    def components(self) -> KeyComponents:
        """Return the components of the key."""
        return KeyComponents({row: digest(part) for row, part in self.rows.items()})


def call_key(lookup: Lookup) -> CallKey:
    """Return the key of a lookup, without a manifest (the base key)."""
    signature = lookup.signature
    rows = {
        "capture": lookup.capture_key.encode(),
        "tree": _encode(signature.tree),
        "leaves": _encode(signature.leaves),
        "statics": _encode(signature.statics),
        "donated": _encode(signature.donated),
        "options": _encode(signature.options),
        "settings": _encode(signature.context),
        "packages": _encode(context.packages().versions({"jax", *lookup.packages})),
        "process": _encode(context.of_process()),
        MACHINE: _encode(context.of_machine()),
    }
    if signature.shardings is not None:
        rows["shardings"] = _encode(signature.shardings)
    if lookup.unverified:
        rows["trace"] = b"unverified"
    text = _digest(rows)
    return CallKey(text, rows, text)


def _digest(rows: Mapping[str, bytes]) -> str:
    return digest(b"".join(f"{label}:{len(row)}:".encode() + row for label, row in rows.items())).hex()
