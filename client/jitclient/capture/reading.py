"""A capture's program as plain data, with the places of its code: read to tell about it, not to run it."""

import dataclasses
import hashlib
from typing import Any

from .code import Location
from .format import MAKING, from_bytes


@dataclasses.dataclass
class Item:
    """One object of a program: how it is made, what completes it, and what is known of it beside the bytes."""

    op: str
    needs: list[Any]
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
            self._digests[id(data)] = data, hashlib.blake2b(data, digest_size=16).digest()
        return self._digests[id(data)][1]


def read(payload: bytes, locations: bytes) -> Reading:
    """Reads the program of a capture."""
    _, steps, root, extras = from_bytes(payload)
    codes, modules = map(iter, from_bytes(locations))
    items: list[Item] = []
    for op, first, *args in steps:
        if op not in MAKING:
            items[first[0]].fills.append([op, *args])
            continue
        item = Item(op, first, args)
        if op in ("function", "source"):
            item.places = next(codes, ())
        elif op == "namespace":
            item.module = next(modules, ("", None))[0] or ""
        items.append(item)
    return Reading(items, root, extras)
