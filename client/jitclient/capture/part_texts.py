"""Captured values in a few words: `0.001`, `float32[32,8] 5b1c0de3`, `function um.scale`."""

from collections.abc import Callable, Iterable
from typing import Any

from .format import ATOMS, reference
from .inline import read_value
from .reading import Item, Reading

_LONGEST = 60
_MOST_ITEMS = 6
_MOST_SHOWN = 4
_DEEPEST = 3
_BRACKETS = {"t": "()", "f": "{}", "list": "[]", "set": "{}", "frozenset": "{}"}
_CONTAINERS = {"list": "extend", "set": "add", "dict": "update"}


class Texts:
    """Describes the values of one program; `name_of` gives the names of its functions, classes and modules."""

    def __init__(self, reading: Reading, name_of: Callable[[int], str]) -> None:
        self._items = reading.items
        self._name_of = name_of
        self._digest = reading.digest

    def of(self, value: Any, depth: int = _DEEPEST) -> str:
        """A short text for a value; values that differ may have the same one."""
        number = reference(value)
        if number is not None:
            return _cut(self._of_item(number, depth))
        kind = type(value)
        if kind is bytes and len(value) > _LONGEST:
            return f"{len(value):,} bytes {self._digest(value)[:4].hex()}"
        if kind in ATOMS:
            return _cut(repr(value))
        if kind is list:
            return _cut(self._listed("[]", value, depth))
        return _cut(self._of_spelled(value, depth))

    def _of_spelled(self, value: Any, depth: int) -> str:
        code, *parts = value
        match code:
            case "t" | "f":
                return self._listed(_BRACKETS[code], parts, depth)
            case "m":
                return f"module {parts[0]}"
            case "g":
                return f"{parts[0]}.{parts[1]}".removeprefix("builtins.")
            case "a":
                return f"{self.of(parts[0], depth)}.{parts[1]}"
            case "d":
                return f"dtype {parts[0]}"
            case "k" | "c" | "r":
                return repr(read_value(value, ()))
        return str(code)

    def _of_item(self, number: int, depth: int) -> str:
        item = self._items[number]
        match item.op:
            case "function" | "class":
                return f"{item.op} {self._name_of(number)}"
            case "namespace":
                return f"module {item.module}"
            case "array":
                return _array_text(item, self._digest)
            case "jax_array":
                return self.of(item.args[0], depth)
            case "dict":
                return self._pairs(item, depth)
            case "list" | "set":
                return self._listed(_BRACKETS[item.op], _held(item), depth)
            case "frozenset":
                return self._listed(_BRACKETS[item.op], item.args[0], depth)
            case "new" | "bare":
                return f"{self._bare(item.args[0])}(…)"
            case "call":
                return _scalar_text(item) or f"{self._bare(item.args[0])}(…)"
        return item.op

    def _bare(self, value: Any) -> str:
        return self.of(value, 1).removeprefix("class ").removeprefix("function ")

    def _pairs(self, item: Item, depth: int) -> str:
        pairs = _held(item)
        if depth <= 0:
            return "{…}" if pairs else "{}"
        shown = [f"{self.of(key, depth - 1)}: {self.of(value, depth - 1)}" for key, value in pairs[:_MOST_ITEMS]]
        return "{" + _joined(shown, len(pairs)) + "}"

    def _listed(self, brackets: str, values: list[Any], depth: int) -> str:
        left, right = brackets[0], brackets[1]
        if depth <= 0:
            return f"{left}…{right}" if values else brackets
        shown = [self.of(value, depth - 1) for value in values[:_MOST_ITEMS]]
        comma = "," if brackets == "()" and len(values) == 1 else ""
        return f"{left}{_joined(shown, len(values))}{comma}{right}"


def _held(item: Item) -> list[Any]:
    return [held for fill in item.fills if fill[0] == _CONTAINERS[item.op] for held in fill[1]]


def _array_text(item: Item, digest: Callable[[bytes], bytes]) -> str:
    import numpy as np

    dtype, shape, data, _, by_column = item.args
    found = np.frombuffer(data, read_value(dtype, ())) if type(dtype) is tuple and dtype[0] == "d" else None
    if found is None:
        return f"array[{','.join(map(str, shape))}] {digest(data)[:4].hex()}"
    spec = f"{found.dtype.name}[{','.join(map(str, shape))}]"
    if found.size > _MOST_SHOWN:
        return f"{spec} {digest(data)[:4].hex()}"
    return f"{spec} {found.reshape(shape, order='F' if by_column else 'C').tolist()}"


def _scalar_text(item: Item) -> str | None:
    """The text of a numpy scalar, which reduces to its type and bytes."""
    import numpy as np

    function, arguments = item.args
    if type(function) is tuple and function[::2] == ("g", "scalar") and type(arguments[1]) is tuple:
        dtype, data = arguments[1:3]
        if dtype[0] == "d" and type(data) is bytes:
            (found,) = np.frombuffer(data, read_value(dtype, ()))
            return f"{found.dtype.name} {found.item()!r}"
    return None


def _joined(texts: Iterable[str], count: int) -> str:
    return ", ".join(texts) + (f", … {count - _MOST_ITEMS} more" if count > _MOST_ITEMS else "")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
