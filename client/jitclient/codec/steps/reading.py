"""A capture's program as data, with the places of its code: read to tell about it, not to run it."""

import dataclasses
import io
from typing import Any

from jitclient.codec.plain import Reference
from jitclient.codec.steps.format import COMPLETES, FORMAT, LOCATED, Head
from jitclient.codec.unpickler import Unpickler, from_bytes
from jitclient.codec.user_code.code import Location
from jitclient.codec.user_code.names import VALUES
from jitclient.digests import digest
from jitclient.errors import CaptureError


@dataclasses.dataclass
class Item:
    """One object of a program: how it is made, what completes it, and what is known of it beside the bytes."""

    op: str
    needs: list[Reference]
    args: list[Any]
    fills: list[list[Any]] = dataclasses.field(default_factory=list)  # [op, *args]
    places: tuple[Location, ...] = ()  # of the code of a function or module, then of those nested in it
    module: str = ""  # of a namespace: the name of the module that it was


@dataclasses.dataclass(frozen=True)
class Reading:
    """A program: its objects by number, the captured function, and the values captured together with it."""

    items: list[Item]
    root: Any
    extras: list[Any]
    _digests: dict[int, tuple[bytes, bytes]] = dataclasses.field(default_factory=dict)

    def digest(self, data: bytes) -> bytes:
        """The digest of bytes that an object of the program holds; worked out once, as they may be large."""
        if id(data) not in self._digests:  # the data stays with it: ids are only unique among living objects
            self._digests[id(data)] = data, digest(data)
        return self._digests[id(data)][1]


def read(payload: bytes, locations: bytes) -> Reading:
    """Reads the program of a capture."""
    reading = read_program(payload)
    codes, modules = map(iter, from_bytes(locations))
    for item in reading.items:
        if item.op in LOCATED:
            item.places = next(codes, ())
        elif item.op == "namespace":
            item.module = next(modules, ("", None))[0] or ""
    return reading


def read_program(payload: bytes) -> Reading:
    """Reads the program of a capture, without the places."""
    reader = _Reader(io.BytesIO(payload))
    head_of(reader.load())
    reader.load()
    root, extras = reader.load()
    return Reading(reader.items, root, extras)


class _Reader(Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.items: list[Item] = []

    def maker(self, name: str) -> Any:
        if name in VALUES:
            return super().maker(name)
        if name.startswith(COMPLETES):
            op = name.removeprefix(COMPLETES)
            return lambda number, *args: self.items[number].fills.append([op, *map(_as_pairs, args)])
        return lambda needs, *args: self._made(Item(name, list(map(Reference, needs)), list(args)))

    def _made(self, item: Item) -> Reference:
        self.items.append(item)
        return Reference(len(self.items) - 1)


def _as_pairs(value: Any) -> Any:
    return [list(pair) for pair in value.items()] if type(value) is dict else value


def head_of(found: Any) -> Head:
    """What the first pickle of a capture says.

    Raises:
        CaptureError: the rest is of another format.
    """
    if found[0] != FORMAT:
        raise CaptureError(f"the capture has format {found[0]}, not {FORMAT}")
    return Head(*found)
