"""What a capture holds: three pickles, which are read here as data, to tell about a program and not to run it."""

import dataclasses
import io
from typing import Any, NamedTuple

from jitclient.capture.codec.pickler import VERSION
from jitclient.capture.codec.plain import Reference
from jitclient.capture.codec.unpickler import Unpickler, from_bytes
from jitclient.capture.user_code.code import Location
from jitclient.capture.user_code.names import VALUES
from jitclient.core.digests import digest
from jitclient.errors import CaptureError

FORMAT = 10
"""Part of the context of every key: raise it whenever the same function gets other bytes."""

COMPLETES = "+"
"""In front of the name of a step that completes an object made before."""

NAMEABLE = frozenset({"class", "function", "new", "bare", "call", "cached", "jit", "partial", "treedef", "of_client"})
"""Objects that get an index that both sides know, after the extras."""

SHARED = NAMEABLE | {"list", "dict", "set", "bytearray", "cell", "trap"}
SHARED |= {"array", "object_array", "jax_array", "prng_key"}
"""Objects that are the same one wherever a result holds them."""

LOCATED = ("function", "source")
"""Functions and bodies of modules, whose places travel beside the program, in its order."""


class Head(NamedTuple):
    """The first pickle of a capture; then come its steps, and what these were made for."""

    format: int = FORMAT
    cloudpickle: str = VERSION
    has_classes: bool = False


def head_of(found: Any) -> Head:
    """What the first pickle of a capture says; CaptureError if the rest is of another format."""
    if found[0] != FORMAT:
        raise CaptureError(f"the capture has format {found[0]}, not {FORMAT}")
    return Head(*found)


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


def read(payload: bytes, locations: bytes = b"") -> Reading:
    """Read the program of a capture, with the places of its code where they are given."""
    reader = _Reader(io.BytesIO(payload))
    head_of(reader.load())
    reader.load()
    root, extras = reader.load()
    codes, modules = map(iter, from_bytes(locations) if locations else ((), ()))
    for item in reader.items:
        if item.op in LOCATED:
            item.places = next(codes, ())
        elif item.op == "namespace":
            item.module = next(modules, ("", None))[0] or ""
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
