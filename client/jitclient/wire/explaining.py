"""Messages about why a call finds no program: what decides a program, part by part, and where two differ."""

import msgspec

from jitclient.wire.decoders import decoded
from jitclient.wire.messages import EntryInfo, Lookup, Message, Part

_CODE, _CONTENT = ": code", ": content"


class KeyPart(Part, frozen=True):
    """One of the things that decide a program.

    Attributes:
        row: the row of the daemon's table of keys that it belongs to: "capture", "leaves", ...
        label: what the user calls it: "global LR", "argument x".
        digest: of what it is.
        text: that in a few words; empty for code.
        where: file and line, where it has one.
    """

    row: str
    label: str
    digest: bytes
    text: str
    where: str = ""


class Difference(Part, frozen=True):
    """Where two programs differ. `old` and `new` are None where one of them has no such thing, and the same text
    where the difference is too small for words.
    """

    what: str
    old: str | None
    new: str | None
    where: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        if self.old is not None and self.new is not None:
            changed = "changed" if self.old == self.new else f"{self.old or 'there'} -> {self.new or 'there'}"
            space = " " if self.what.endswith((_CODE, _CONTENT)) and not (self.old or self.new) else ": "
            return f"{self.what}{space}{changed}{place}"
        fate = "gone" if self.new is None else "new"
        value = self.old if self.new is None else self.new
        return f"{self.what.removesuffix(_CODE).removesuffix(_CONTENT)}: {fate}{f', {value}' if value else ''}{place}"


class Explain(Message):
    """Ask, without making anything, whether a program is there, and which comes nearest to it. `parts` are encoded."""

    lookup: Lookup
    name: str
    parts: bytes


class Why(Message):
    """Compare a cached program with another, or with the nearest one where `other` is empty. Both are whole keys."""

    key: str
    other: str = ""


class Explained(Message):
    """What is known of a program: whether it is there, and where it differs from the nearest other one."""

    key: str
    found: EntryInfo | None
    nearest: EntryInfo | None
    differences: tuple[Difference, ...]  # from the nearest to this one
    refusal: str = ""  # why the daemon cannot make it
    crashes: str = ""  # why it will not touch it


def encode_parts(parts: list[KeyPart]) -> bytes:
    """Parts as they travel, and as the daemon keeps them."""
    return msgspec.msgpack.encode(parts)


def decode_parts(data: bytes) -> list[KeyPart]:
    """The inverse of `encode_parts`.

    Raises:
        msgspec.MsgspecError: the bytes hold something else.
    """
    return decoded(data, list[KeyPart]) if data else []
