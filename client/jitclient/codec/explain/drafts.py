"""The parts of a capture while they are put together: which object goes to which, and what parts say of each other."""

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jitclient.codec.explain.texts import Texts
from jitclient.codec.pickler import to_bytes
from jitclient.codec.plain import COMPOUND, Reduced, Reference
from jitclient.codec.steps.format import Item, Reading
from jitclient.codec.unpickler import references
from jitclient.digests import digest

_MOST_PARTS = 2000  # beyond, what containers hold is not told apart any more
_MOST_ITEMS = 200
_LONGEST_LABEL = 120
_LONG_BYTES = 256


class Part(NamedTuple):
    """One thing that a function depends on; parts with the same label and digest are the same.

    Attributes:
        label: what a user calls it.
        digest: of what it is.
        text: its value in a few words, empty for code.
        where: file and line, where it has one.
    """

    label: str
    digest: bytes
    text: str
    where: str


@dataclasses.dataclass
class Draft:
    """A part that is not complete yet."""

    content: list[Any] = dataclasses.field(default_factory=list)
    text: str = ""
    where: str = ""


class Drafts:
    """Every object of a program goes to one part: its own if it has a name, or the one by whose way it is met first.

    What parts say of objects has labels where the program has numbers: so that a part stays the same when another
    part grows.
    """

    def __init__(self, reading: Reading) -> None:
        self.items = reading.items
        self._reading = reading
        self.texts = Texts(reading)
        self._drafts: dict[str, Draft] = {}
        self._handles: dict[int, str] = {}
        self._met: Counter[str] = Counter()
        self._heads: set[int] = set()  # those that a slot holds directly
        self._queue: deque[tuple[int, str]] = deque()

    def claimed(self) -> Iterator[tuple[int, Item, str]]:
        """Every object once, with the label of its part, in the order in which they are met."""
        while self._queue:
            number, label = self._queue.popleft()
            yield number, self.items[number], label

    def finished(self) -> tuple[Part, ...]:
        """The parts, in the order in which they were met."""
        return tuple(
            Part(label, digest(to_bytes(draft.content), 8), draft.text, draft.where)
            for label, draft in self._drafts.items()
        )

    def draft(self, label: str) -> Draft:
        """The part of that label."""
        return self._drafts.setdefault(label, Draft())

    def add(self, label: str, *content: Any) -> None:
        """Adds values to a part."""
        self.draft(label).content.append([self._told(label, value) for value in content])

    def slot(self, label: str, value: Any) -> None:
        """Makes a part of a place that holds a value: a name, a default, an entry of a container."""
        draft = self.draft(label)
        draft.text = draft.text or self.texts.of(value)
        if type(value) is Reference and value not in self._handles:
            self._heads.add(value)
        if type(value) is tuple and self._has_room(label, len(value)) and references(value):
            self.add(label, "tuple", len(value))
            for position, held in enumerate(value):
                self.slot(inside(label, f"[{position}]"), held)
        else:
            self.add(label, value)

    def pairs(self, pairs: list[Any], label: Callable[[Any], str]) -> None:
        """Makes a part of each value, with a label made of its key."""
        for key, value in pairs:
            self.slot(label(key), value)

    def is_split(self, number: int, item: Item, label: str) -> bool:
        """Whether what an object holds makes parts of its own."""
        size = sum(len(arg) for fill in item.fills for arg in fill[1:] if type(arg) is list)
        return number in self._heads and self._has_room(label, size)

    def claim(self, number: int, label: str) -> str:
        """What parts say of an object. If it is met for the first time and has no name, it goes to the part `label`."""
        if number not in self._handles:
            own = self._own_label(number, self.items[number], label)
            handle = own or label
            self._met[handle] += 1
            if self._met[handle] > 1:
                handle = f"{handle} ({self._met[handle]})"
            self._handles[number] = handle
            self._queue.append((number, handle if own else label))
        return self._handles[number]

    def _has_room(self, label: str, size: int) -> bool:
        return size <= _MOST_ITEMS and len(self._drafts) <= _MOST_PARTS and len(label) <= _LONGEST_LABEL

    def _told(self, label: str, value: Any) -> Any:
        if type(value) is Reference:
            item = self.items[value]
            return ("code", item.args[0]) if item.op == "code" else ("at", self.claim(value, label))
        if type(value) is Reduced:
            return Reduced(value.maker, self._told(label, value.args))
        if type(value) in COMPOUND:
            return type(value)([self._told(label, part) for part in value])
        if type(value) is bytes and len(value) > _LONG_BYTES:
            return ("digest", self._reading.digest(value))
        return value

    def _own_label(self, number: int, item: Item, label: str) -> str | None:
        match item.op:
            case "function" if item is self.texts.main:
                return f"code of {self.texts.name(number)}"
            case "function" if label.startswith("class ") and ": " in label:
                return label.replace(": attribute ", ": method ")
            case "function":
                return f"helper {self.texts.name(number)}: code"
            case "class":
                return f"class {self.texts.name(number)}"
            case "bind":
                return f"global {self.texts.name_in(*item.args[:2])}"
            case "patch":
                home, name, dotted, _ = item.args
                return f"global {self.texts.name_in(home, '.'.join([name, *dotted]))}"
            case "namespace":
                return f"module {self.texts.name_in(Reference(number), '')}"
            case "source" | "alias":
                return f"module {item.args[0]}: code"
        return None


def inside(label: str, step: str) -> str:
    """The label of what a part holds: `global CONFIG['lr']`, `closure layers[0] of step`."""
    place, of, owner = label.partition(" of ")
    return f"{place}{step}{of}{owner}"
