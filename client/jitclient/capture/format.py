"""The bytes of a capture: a program of plain data, and how its values are spelled.

A payload is `(FORMAT, steps, fn, extras)`. A step either makes one object, which gets the next
number, or completes objects made before. Values in steps are

- atoms (None, bool, int, float, str, bytes): themselves;
- `(n,)`: the object with number n;
- `(code, *parts)`: a value without identity, spelled out; the codes are those of `inline.py`;
- lists: structure that belongs to the step, not a value of the user's.
"""

import hashlib
import io
import pickle
from collections.abc import Iterator
from typing import Any

FORMAT = 5
"""Part of the context of every key: raise it whenever the same function gets other bytes."""

ATOMS = frozenset({type(None), bool, int, float, str, bytes})

MAKING = frozenset(
    {
        "alias",
        "array",
        "bare",
        "bind",
        "bytearray",
        "call",
        "cell",
        "class",
        "code",
        "device",
        "dict",
        "frozenset",
        "function",
        "fresh",
        "jax_array",
        "jit",
        "list",
        "lock",
        "method",
        "names",
        "namespace",
        "new",
        "object_array",
        "partial",
        "patch",
        "prng_key",
        "set",
        "source",
        "trap",
        "treedef",
        "typed_dict",
        "typevar",
        "weakref",
        "whole",
    }
)
"""Steps that make an object; all others complete one."""

NAMEABLE = frozenset({"class", "function", "new", "bare", "call", "jit", "partial"})
"""Objects that get an index that both sides know, after the extras."""

SHARED = NAMEABLE | {"list", "dict", "set", "bytearray", "cell", "array", "object_array", "jax_array", "prng_key"}
"""Objects that are the same one wherever a result holds them."""


def to_bytes(value: Any) -> bytes:
    """Canonical bytes of plain data: a pickle without memo depends on values, never on identity."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol=5)
    pickler.fast = True
    pickler.dump(value)
    return file.getvalue()


def reference(value: Any) -> int | None:
    """The number of the object that a value of a step refers to, or None where it spells something out."""
    return value[0] if type(value) is tuple and len(value) == 1 and type(value[0]) is int else None


def references(value: Any) -> Iterator[int]:
    """The numbers of the objects that a value of a step mentions."""
    number = reference(value)
    if number is not None:
        yield number
    elif type(value) is tuple or type(value) is list:
        for part in value:
            if type(part) is tuple or type(part) is list:
                yield from references(part)


class _PlainReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"plain data names {module}.{name}")


def from_bytes(data: bytes) -> Any:
    """The inverse of `to_bytes`; refuses everything that is not plain data."""
    return _PlainReader(io.BytesIO(data)).load()


def digest(data: bytes) -> str:
    """The hex digest that serves as a key."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
