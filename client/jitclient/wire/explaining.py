"""Messages about misses: the parts of a call key, and the differences between two keys."""

from typing import Annotated

import msgspec

from jitclient.wire.encoding import decoder, encoded
from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import MAX_ITEMS, Lookup, Message, Part

_CODE, _CONTENT = ": code", ": content"


class KeyPart(Part, frozen=True):
    """Part of a call key.

    Attributes:
        row: component of the key that the part belongs to: "capture", "leaves", ...
        label: name of the part for the user: "global LR", "argument x".
        digest: digest of the part's value.
        text: short form of the value; empty for code.
        where: file and line, if known.
    """

    row: str
    label: str
    digest: bytes
    text: str
    where: str = ""


class Difference(Part, frozen=True):
    """Difference between two programs.

    `old` or `new` is None if only one program has the part. They are equal if the texts do not show the difference.
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
    """Question whether a program is cached, and which program is nearest, without making any. `parts` are encoded."""

    lookup: Lookup
    name: str
    parts: bytes


class Why(Message):
    """Request to compare a cached program with another, or with the nearest if `other` is empty. Both are full keys."""

    key: str
    other: str = ""


class Explained(Message):
    """Answer to Explain and Why: whether a program is cached, and its differences from the nearest other one."""

    key: str
    found: EntryInfo | None
    nearest: EntryInfo | None
    differences: tuple[Difference, ...]  # from the nearest to this one
    refusal: str = ""  # why the daemon cannot make the program
    crashes: str = ""  # why the daemon refuses to load the program
    names: tuple[tuple[str, ...], ...] = ()  # lists of names whose state selects the program
    lab_seconds: float | None = None  # if the lab's cache has the program: what making such a program took
    lab_has_trace_only: bool = False  # from another kind of machine, for which it was compiled


# Parts of the arguments, and as many again.
_Parts = Annotated[list[KeyPart], msgspec.Meta(max_length=2 * MAX_ITEMS)]


def encode_parts(parts: list[KeyPart]) -> bytes:
    """Encode parts of a key, in the form that is sent and that the daemon stores."""
    return encoded(parts)


def decode_parts(data: bytes) -> list[KeyPart]:
    """Decode the bytes that `encode_parts` returned.

    Raises:
        msgspec.MsgspecError: the bytes hold something else.
    """
    parts: list[KeyPart] = decoder(_Parts).decode(data) if data else []
    return parts
