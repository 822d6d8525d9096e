"""Captured values in a few words: `0.001`, `float32[32,8] 5b1c0de3`, `function um.scale`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jitclient.codec.pickler import to_bytes
from jitclient.codec.plain import ATOMS, Reduced, Reference
from jitclient.codec.steps.reading import Item, Reading
from jitclient.codec.values import dtype as dtype_of

_LONGEST = 60
_MOST_ITEMS = 6
_MOST_SHOWN = 4
_DEEPEST = 3
_BRACKETS = {"list": "[]", "set": "{}", "frozenset": "{}"}
_CONTAINERS = {"list": "extend", "set": "add", "dict": "update"}


class Texts:
    """Describes the values of one program; `name_of` gives the names of its functions, classes and modules."""

    def __init__(self, reading: Reading, name_of: Callable[[int], str]) -> None:
        self._items = reading.items
        self._name_of = name_of
        self._digest = reading.digest

    def of(self, value: Any, depth: int = _DEEPEST) -> str:
        """A short text for a value; values that differ may have the same one."""
        kind = type(value)
        if kind is Reference:
            return _cut(self._of_item(value, depth))
        if kind is bytes and len(value) > _LONGEST:
            return f"{len(value):,} bytes {self._digest(value)[:4].hex()}"
        if kind in ATOMS:
            return _cut(repr(value))
        if kind is list:
            return _cut(self._listed("[]", value, depth))
        if kind is tuple:
            return _cut(self._listed("()", value, depth))
        if kind is frozenset:
            return _cut(self._listed("{}", sorted(value, key=to_bytes), depth))
        return _cut(self._of_reduced(value, depth) if kind is Reduced else repr(value))

    def _of_reduced(self, value: Reduced, depth: int) -> str:
        match value:
            case Reduced("module", (name,)):
                return f"module {name}"
            case Reduced("installed", (module, name)):
                return f"{module}.{name}".removeprefix("builtins.")
            case Reduced("attribute", (owner, name)):
                return f"{self.of(owner, depth)}.{name}"
            case Reduced("dtype", (name,)):
                return f"dtype {name}"
        return value.maker

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

    def _listed(self, brackets: str, values: Sequence[Any], depth: int) -> str:
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
    found = np.frombuffer(data, dtype_of(*dtype.args)) if type(dtype) is Reduced and dtype.maker == "dtype" else None
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
    match function, arguments:
        case Reduced("installed", (_, "scalar")), (Reduced("dtype", (name,)), bytes(data)):
            (found,) = np.frombuffer(data, dtype_of(name))
            return f"{found.dtype.name} {found.item()!r}"
    return None


def _joined(texts: Iterable[str], count: int) -> str:
    return ", ".join(texts) + (f", … {count - _MOST_ITEMS} more" if count > _MOST_ITEMS else "")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
