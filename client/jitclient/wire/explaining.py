"""Messages about misses: the parts of a call key, and the differences between two keys."""

from jitclient.wire.encoding import decoded, encoded
from jitclient.wire.messages import EntryInfo, Lookup, Message, Part

_CODE, _CONTENT = ": code", ": content"


class KeyPart(Part, frozen=True):
    """One part of a call key.

    Attributes:
        row: the component of the key that it belongs to: "capture", "leaves", ...
        label: its name for the user: "global LR", "argument x".
        digest: of its value.
        text: its value in short; empty for code.
        where: file and line, if it has them.
    """

    row: str
    label: str
    digest: bytes
    text: str
    where: str = ""


class Difference(Part, frozen=True):
    """A difference between two programs. `old` or `new` is None if only one has the part; they are equal if the texts
    do not show the difference.
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
    """Ask whether a program is cached, and for the nearest one, without making any. `parts` are encoded."""

    lookup: Lookup
    name: str
    parts: bytes


class Why(Message):
    """Compare a cached program with another, or with the nearest if `other` is empty. Both are full keys."""

    key: str
    other: str = ""


class Explained(Message):
    """Whether a program is cached, and how it differs from the nearest other one."""

    key: str
    found: EntryInfo | None
    nearest: EntryInfo | None
    differences: tuple[Difference, ...]  # from the nearest to this one
    refusal: str = ""  # why the daemon cannot make it
    crashes: str = ""  # why it refuses to load it
    names: tuple[tuple[str, ...], ...] = ()  # lists of names, whose state decides which program it is


def encode_parts(parts: list[KeyPart]) -> bytes:
    """Encode parts, as they are sent and as the daemon stores them."""
    return encoded(parts)


def decode_parts(data: bytes) -> list[KeyPart]:
    """The inverse of `encode_parts`.

    Raises:
        msgspec.MsgspecError: the bytes hold something else.
    """
    return decoded(data, list[KeyPart]) if data else []
