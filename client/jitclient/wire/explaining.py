"""Messages about misses: the differences between two programs."""

from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import Message, Part, Prepare

_CODE, _CONTENT = ": code", ": content"


class Difference(Part, frozen=True):
    """Difference between two programs.

    `old` or `new` is None if only one program has the part, both if `what` says all. They are equal if the texts do not
    show the difference. `row` is the component of the key.
    """

    what: str
    old: str | None
    new: str | None
    where: str = ""
    row: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        if self.old is None and self.new is None:
            return self.what + place
        if self.old is not None and self.new is not None:
            changed = "changed" if self.old == self.new else f"{self.old or 'there'} -> {self.new or 'there'}"
            space = " " if self.what.endswith((_CODE, _CONTENT)) and not (self.old or self.new) else ": "
            return f"{self.what}{space}{changed}{place}"
        fate = "gone" if self.new is None else "new"
        value = self.old if self.new is None else self.new
        return f"{self.what.removesuffix(_CODE).removesuffix(_CONTENT)}: {fate}{f', {value}' if value else ''}{place}"


class Explain(Message):
    """Question whether a program is cached, and which program is nearest, without making any.

    The request is the one that would make the program. The capture is empty if there is none, or it is large.
    """

    request: Prepare
    capture: bytes = b""


class Why(Message):
    """Request to compare a cached program with another, or with the nearest if `other` is empty. Both are full keys."""

    key: str
    other: str = ""


class Explained(Message):
    """Answer to Explain and Why: whether a program is cached, and its differences from the nearest other one."""

    key: str
    found: EntryInfo | None
    nearest: EntryInfo | None  # nothing if no other program is similar
    differences: tuple[Difference, ...]  # from the nearest to this one
    refusal: str = ""  # why the daemon cannot make the program
    crashes: str = ""  # why the daemon refuses to load the program
    names: tuple[tuple[str, ...], ...] = ()  # lists of names whose state selects the program
    lab_seconds: float | None = None  # if the lab's cache has the program: what making such a program took
    lab_has_trace_only: bool = False  # from another kind of machine, for which it was compiled
