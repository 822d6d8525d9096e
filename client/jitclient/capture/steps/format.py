"""Format of a capture: three pickles, read here as data.

A reading describes a program without running it.
"""

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

FORMAT = 15
"""Part of the context of every key; increase it whenever the bytes of the same function change."""

COMPLETION_PREFIX = "+"
"""Prefix in the name of a step that completes an object made before."""

INDEXED_OPS = frozenset(
    {"class", "function", "new", "bare", "call", "cached", "jit", "partial", "treedef", "of_client"}
)
"""Steps whose objects get an index that both sides know, after the extras."""

IDENTITY_OPS = INDEXED_OPS | {"list", "dict", "set", "bytearray", "cell", "trap"}
IDENTITY_OPS |= {"array", "object_array", "jax_array", "prng_key"}
"""Steps whose objects keep their identity wherever a result holds them."""

LOCATED_OPS = ("function",)
"""Steps for functions and module bodies, whose locations are sent beside the program, in its order."""


class Head(NamedTuple):
    """First pickle of a capture; the steps and then the roots (function and extras) follow."""

    format: int = FORMAT
    cloudpickle: str = VERSION
    has_classes: bool = False


def head_of(found: Any) -> Head:
    """Return the head of a capture from its first pickle.

    Raises:
        CaptureError: the capture has another format.
    """
    if found[0] != FORMAT:
        raise CaptureError(f"the capture has format {found[0]}, not {FORMAT}")
    return Head(*found)


@dataclasses.dataclass
class Item:
    """Object of a program: the step that makes it, and the steps that complete it.

    Attributes:
        op: name of the step that makes it.
        needs: objects that must exist before it is used, without being part of it.
        args: arguments of the step that makes it.
        fills: steps that complete it, as [op, *args].
        places: locations of a function's or module's code, then of its nested code; not part of the payload.
        module: original module name of a namespace; not part of the payload.
    """

    op: str
    needs: list[Reference]
    args: list[Any]
    fills: list[list[Any]] = dataclasses.field(default_factory=list)
    places: tuple[Location, ...] = ()
    module: str = ""


@dataclasses.dataclass(frozen=True)
class Reading:
    """Program of a capture: its objects by number, the captured function (`root`), and the extras captured with it."""

    items: list[Item]
    root: Any
    extras: list[Any]
    _digests: dict[int, tuple[bytes, bytes]] = dataclasses.field(default_factory=dict)

    def digest(self, data: bytes) -> bytes:
        """Return the digest of bytes that an object of the program holds.

        The digest is computed once, because the bytes may be large.
        """
        if id(data) not in self._digests:
            # The entry keeps the data alive, since ids are unique only among living objects.
            self._digests[id(data)] = data, digest(data)
        return self._digests[id(data)][1]


def read(payload: bytes, locations: bytes = b"") -> Reading:
    """Read the program of a capture, with the locations of its code if they are given."""
    reader = _Reader(io.BytesIO(payload))
    head_of(reader.load())
    reader.load()
    root, extras = reader.load()
    codes, modules = map(iter, from_bytes(locations) if locations else ((), ()))
    for item in reader.items:
        if item.op in LOCATED_OPS:
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
        if name.startswith(COMPLETION_PREFIX):
            op = name.removeprefix(COMPLETION_PREFIX)
            return lambda number, *args: self.items[number].fills.append([op, *map(_as_pairs, args)])
        return lambda needs, *args: self._made(Item(name, list(map(Reference, needs)), list(args)))

    def _made(self, item: Item) -> Reference:
        self.items.append(item)
        return Reference(len(self.items) - 1)


def _as_pairs(value: Any) -> Any:
    return [list(pair) for pair in value.items()] if type(value) is dict else value
