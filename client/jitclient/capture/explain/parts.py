"""Division of a capture into labelled parts, in the user's terms, so that two captures can be compared.

Labels are such as `code of step`, `global LR`, `helper um.scale: code` and `closure k of step`. Parts refer to each
other by label, so an edit changes only the part where it was made. The parts are computed from a capture's bytes on
demand and cost nothing otherwise.
"""

import dataclasses
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import COMPOUND, Reduced, Reference
from jitclient.capture.codec.unpickler import from_bytes, references
from jitclient.capture.explain.texts import Code, Texts, place_of
from jitclient.capture.steps.format import Item, Reading, read
from jitclient.core.digests import digest

# Beyond this number, the contents of containers get no parts of their own.
_MAX_PARTS = 2000
_MAX_ITEMS = 200
_MAX_LABEL_LENGTH = 120
_LONG_BYTES = 256
_NAME = 10  # position in the form of a code object


class CapturePart(NamedTuple):
    """Part of what a function depends on; parts with equal label and digest are equal.

    Attributes:
        label: name of the part in the user's terms.
        digest: digest of the part's content.
        text: short text of its value; empty for code.
        where: file and line; empty if it has none.
        code: canonical form and locations of its code; empty if it has none.
    """

    label: str
    digest: bytes
    text: str
    where: str = ""
    code: Code | tuple[()] = ()


def parts_of(
    payload: bytes, locations: bytes = b"", extras: Mapping[int, str] | None = None, name: str = ""
) -> tuple[CapturePart, ...]:
    """Divide a capture into parts.

    Args:
        payload: bytes of the capture.
        locations: locations of its code, with the names of its modules and variables.
        extras: position -> name for the values that were captured with the function.
        name: name to give to the function, for a comparison with one of another name; empty for its own.

    Returns:
        The parts, in the order in which they are reached from the function.

    Example:
        >>> [part.label for part in parts_of(made.payload, made.locations)]
        ['code of step', 'global LR', 'helper um.scale: code', 'global um.scale']
    """
    reading = read(payload, locations)
    drafts = _Drafts(reading, name)
    drafts.slot("the function", reading.root)
    for position, extra in enumerate(reading.extras):
        drafts.slot((extras or {}).get(position, f"value {position} of the call"), extra)
    return drafts.finished()


@dataclasses.dataclass
class _Draft:
    """Part that is under construction."""

    content: list[Any] = dataclasses.field(default_factory=list)
    text: str = ""
    where: str = ""
    code: Code | tuple[()] = ()


class _Drafts:
    """Parts under construction. Every object of a program belongs to one part.

    A named object gets a part of its own; any other object belongs to the part from which it is reached first. The
    content of a part refers to objects by label, not by number, so that a part stays the same when another part grows.
    """

    def __init__(self, reading: Reading, name: str) -> None:
        self._items = reading.items
        self._digest = reading.digest
        self._texts = Texts(reading, name)
        self._name = name
        self._drafts: dict[str, _Draft] = {}
        self._handles: dict[int, str] = {}
        self._met: Counter[str] = Counter()
        self._heads: set[int] = set()  # objects that a slot holds directly
        self._queue: deque[tuple[int, str]] = deque()

    def finished(self) -> tuple[CapturePart, ...]:
        """Assign every object to a part, and return the parts in the order in which they were reached."""
        while self._queue:
            number, label = self._queue.popleft()
            self._describe_item(number, self._items[number], label)
            for needed in references(self._items[number].needs):
                self._claim(needed, label)
        return tuple(
            CapturePart(label, digest(to_bytes(draft.content), 8), draft.text, draft.where, draft.code)
            for label, draft in self._drafts.items()
        )

    def slot(self, label: str, value: Any) -> None:
        """Make a part of a place that holds a value: a name, a default, an entry of a container."""
        draft = self._draft(label)
        draft.text = draft.text or self._texts.of(value)
        if type(value) is Reference and value not in self._handles:
            self._heads.add(value)
        if type(value) is tuple and self._has_room(label, len(value)) and references(value):
            self._add(label, "tuple", len(value))
            self._slots(enumerate(value), lambda position: _inside(label, f"[{position}]"))
        else:
            self._add(label, value)

    def _slots(self, pairs: Iterable[Any], label: Callable[[Any], str]) -> None:
        """Make a part of each value; its label is made from its key."""
        for key, value in pairs:
            self.slot(label(key), value)

    def _draft(self, label: str) -> _Draft:
        return self._drafts.setdefault(label, _Draft())

    def _add(self, label: str, *content: Any) -> None:
        """Add values to the content of a part."""
        self._draft(label).content.append([self._labelled(label, value) for value in content])

    def _labelled(self, label: str, value: Any) -> Any:
        if type(value) is Reference:
            item = self._items[value]
            return ("code", item.args[0]) if item.op == "code" else ("at", self._claim(value, label))
        if type(value) is Reduced:
            return Reduced(value.maker, self._labelled(label, value.args))
        if type(value) in COMPOUND:
            return type(value)([self._labelled(label, part) for part in value])
        if type(value) is bytes and len(value) > _LONG_BYTES:
            return ("digest", self._digest(value))
        return value

    def _claim(self, number: int, label: str) -> str:
        """Return the label by which parts refer to an object.

        An object reached for the first time is queued for its own part if it has a name, otherwise for the part
        `label`.
        """
        if number not in self._handles:
            own = self._own_label(number, self._items[number], label)
            handle = own or label
            self._met[handle] += 1
            if self._met[handle] > 1:
                handle = f"{handle} ({self._met[handle]})"
            self._handles[number] = handle
            self._queue.append((number, handle if own else label))
        return self._handles[number]

    def _own_label(self, number: int, item: Item, label: str) -> str | None:
        match item.op:
            case "function" if item is self._texts.main:
                return f"code of {self._texts.name(number)}"
            case "function" if label.startswith("class ") and ": " in label:
                return label.replace(": attribute ", ": method ")
            case "function":
                return f"helper {self._texts.name(number)}: code"
            case "class":
                return f"class {self._texts.name(number)}"
            case "bind":
                return f"global {self._texts.name_in(*item.args[:2])}"
            case "patch":
                home, name, dotted, _ = item.args
                return f"global {self._texts.name_in(home, '.'.join([name, *dotted]))}"
            case "namespace":
                return f"module {self._texts.name_in(Reference(number), '')}"
            case "alias":
                return f"module {item.args[0]}"
        return None

    def _has_room(self, label: str, size: int) -> bool:
        return size <= _MAX_ITEMS and len(self._drafts) <= _MAX_PARTS and len(label) <= _MAX_LABEL_LENGTH

    def _describe_item(self, number: int, item: Item, label: str) -> None:
        match item.op:
            case "bind" | "patch":
                self.slot(label, item.args[-1])
            case "cell":
                for _, content in item.fills:
                    self.slot(label, content)
            case "class":
                self._describe_class(item, label)
            case "function":
                self._describe_function(self._texts.name(number), item, label)
            case "method":
                function, owner = item.args
                self._add(label, function)
                self.slot(f"self of {label}", owner)
            case "namespace":
                # The names bound in it get parts of their own.
                pass
            case "whole":
                self._add(label, *item.args)
            case "partial":
                kind, function, arguments, keywords = item.args
                self._add(label, kind, function, len(arguments))
                self._slots([*enumerate(arguments), *keywords], lambda key: f"{label}: argument {key}")
                self._add(label, item.fills)
            case _:
                self._describe_other(number, item, label)

    def _describe_function(self, name: str, item: Item, label: str) -> None:
        code, home, own_name, closure, rebinds = item.args
        arguments, free = self._texts.argument_names(item)
        for cell, variable in zip(closure, free, strict=False):
            self._claim(cell, f"closure {variable} of {name}")
        body = from_bytes(self._items[code].args[0])
        if item is self._texts.main and self._name:
            body[_NAME] = own_name = self._name
        self._draft(label).where, self._draft(label).code = place_of(item.places), (body, item.places)
        self._add(label, home, own_name, closure, rebinds)
        self._draft(label).content.append(body)
        for op, *args in item.fills:
            if op == "defaults":
                defaults = args[0]
                named = zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
                self._slots(named, lambda key: f"default {key} of {name}")
            elif op == "kwdefaults":
                self._slots(args[0], lambda key: f"default {key} of {name}")
            elif op == "attributes":
                self._slots(args[0], lambda key: f"attribute {key} of {name}")
            else:
                self._add(f"{op} of {name}", args)

    def _describe_class(self, item: Item, label: str) -> None:
        mode, metaclass, name, bases, attributes, keywords = item.args
        self._add(label, mode, metaclass, name, bases, keywords)
        self._describe_attributes(attributes, label)
        for op, *args in item.fills:
            if op in ("set_attribute", "impose"):
                self._describe_attributes([args] if op == "set_attribute" else args[0], label)
            else:
                self._add(label, op, args)

    def _describe_attributes(self, attributes: list[Any], label: str) -> None:
        for name, value in attributes:
            if type(value) is Reference and self._items[value].op == "function":
                self._claim(value, f"{label}: method {name}")
                self._add(label, name, value)
            else:
                self._add(label, name)
                self.slot(f"{label}: attribute {name}", value)

    def _describe_other(self, number: int, item: Item, label: str) -> None:
        """Add any other object to a part.

        Its contents get parts of their own if a slot holds the object directly and the limits allow it.
        """
        size = sum(len(arg) for fill in item.fills for arg in fill[1:] if type(arg) is list)
        is_split = number in self._heads and self._has_room(label, size)
        self._add(label, item.op, item.args)
        for op, *args in item.fills:
            if is_split and op in ("update", "set_items"):
                self._add(label, [key for key, _ in args[0]])
                self._slots(args[0], lambda key: _inside(label, f"[{self._texts.of(key)}]"))
            elif is_split and op == "state":
                self._add(label, *[[key for key, _ in pairs] for pairs in args])
                self._slots([*args[0], *args[1]], lambda key: _inside(label, f".{key}"))
            elif is_split and op in ("extend", "append"):
                self._add(label, len(args[0]))
                self._slots(enumerate(args[0]), lambda position: _inside(label, f"[{position}]"))
            else:
                self._add(label, op, args)


def _inside(label: str, step: str) -> str:
    """Return the label of a part's content: `global CONFIG['lr']`, `closure layers[0] of step`."""
    place, of, owner = label.partition(" of ")
    return f"{place}{step}{of}{owner}"
