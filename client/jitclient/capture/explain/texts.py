"""Names of the parts of a captured program, and short texts of its values: `float32[32,8] 5b1c0de3`."""

import dis
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from types import CodeType
from typing import Any

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.codec.unpickler import from_bytes, references
from jitclient.capture.codec.values import dtype as dtype_of
from jitclient.capture.steps.format import Item, Reading
from jitclient.capture.user_code.code import Location, build_code

Code = tuple[list[Any], tuple[Location, ...]]
"""Canonical form of a code object, and the locations of that code and of its nested code."""

_MAX_LENGTH = 60
_MAX_ITEMS = 6
_MAX_SHOWN = 4
_MAX_DEPTH = 3
_BRACKETS = {"list": ("[", "]"), "tuple": ("(", ")"), **dict.fromkeys(("dict", "frozenset", "set"), ("{", "}"))}
_FILLED_BY = {"list": "extend", "set": "add", "dict": "update"}


class Texts:
    """Names as in the user's files, and texts of values; names omit the module of the captured function."""

    def __init__(self, reading: Reading, name: str = "") -> None:
        self._items = reading.items
        self._digest = reading.digest
        self._name = name  # of the captured function, if not its own
        self.main = next((item for item in _reached(reading) if item.op == "function"), None)
        self._home = self.main.args[1] if self.main is not None else None

    def name(self, number: int) -> str:
        """Return the name of a function or class."""
        item = self._items[number]
        if self._name and item is self.main:
            return self._name
        if item.op == "class":
            return str(item.args[2])
        name = item.places[0][3].rpartition("<locals>.")[2] if item.places else str(item.args[2])
        return self.name_in(item.args[1], name)

    def name_in(self, home: Any, name: str) -> str:
        """Return a name qualified by the namespace that `home` refers to: `um.scale`."""
        if type(home) is not Reference or home == self._home:
            return name
        module = self._items[home].module
        return f"{module}.{name}" if module else name

    def argument_names(self, item: Item) -> tuple[list[str], list[str]]:
        """Return the names of a function's positional arguments and of its closure's variables."""
        (blob,) = self._items[item.args[0]].args
        body = from_bytes(blob)
        variables, free = (item.places[0][4], item.places[0][5]) if item.places else (body[9], body[12])
        return list(variables[: body[0]]), list(free)

    def of(self, value: Any, depth: int = _MAX_DEPTH) -> str:
        """Return a short text for a value; different values may have the same text."""
        text = self._text(value, depth)
        return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"

    def _text(self, value: Any, depth: int) -> str:
        kind = type(value)
        if kind is Reference:
            return self._of_item(value, depth)
        if kind is bytes and len(value) > _MAX_LENGTH:
            return f"{len(value):,} bytes {self._digest(value)[:4].hex()}"
        if kind in (list, tuple, frozenset):
            return self._listed(kind.__name__, sorted(value, key=to_bytes) if kind is frozenset else value, depth)
        return self._of_reduced(value, depth) if kind is Reduced else repr(value)

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
                return f"{item.op} {self.name(number)}"
            case "namespace":
                return f"module {item.module}"
            case "array":
                return _array_text(item, self._digest)
            case "jax_array":
                return self.of(item.args[0], depth)
            case "list" | "set" | "dict":
                held = [each for fill in item.fills if fill[0] == _FILLED_BY[item.op] for each in fill[1]]
                return self._listed(item.op, held, depth)
            case "frozenset":
                return self._listed(item.op, item.args[0], depth)
            case "new" | "bare":
                return f"{self._bare(item.args[0])}(…)"
            case "call":
                return _scalar_text(item) or f"{self._bare(item.args[0])}(…)"
        return item.op

    def _bare(self, value: Any) -> str:
        return self.of(value, 1).removeprefix("class ").removeprefix("function ")

    def _listed(self, kind: str, held: Sequence[Any], depth: int) -> str:
        left, right = _BRACKETS[kind]
        if depth <= 0:
            return f"{left}…{right}" if held else left + right
        shown = [self._entry(kind, each, depth - 1) for each in held[:_MAX_ITEMS]]
        more = f", … {len(held) - _MAX_ITEMS} more" if len(held) > _MAX_ITEMS else ""
        comma = "," if kind == "tuple" and len(held) == 1 else ""
        return f"{left}{', '.join(shown)}{more}{comma}{right}"

    def _entry(self, kind: str, held: Any, depth: int) -> str:
        return ": ".join(self.of(part, depth) for part in held) if kind == "dict" else self.of(held, depth)


def _array_text(item: Item, digest: Callable[[bytes], bytes]) -> str:
    import numpy as np

    dtype, shape, data, _, strides = item.args
    spec, text = f"[{','.join(map(str, shape))}]", digest(data)[:4].hex()
    if type(dtype) is not Reduced or dtype.maker != "dtype":
        return f"array{spec} {text}"
    found = np.frombuffer(data, dtype_of(*dtype.args))
    if found.size <= _MAX_SHOWN:
        text = str(found.reshape(shape).tolist())
    return f"{found.dtype.name}{spec} {text}{f' with strides {tuple(strides)}' if strides else ''}"


def _scalar_text(item: Item) -> str | None:
    """Return the text of a numpy scalar, which reduces to its type and bytes; None for other objects."""
    import numpy as np

    match item.args:
        case [Reduced("installed", (_, "scalar")), (Reduced("dtype", (name,)), bytes(data))]:
            (found,) = np.frombuffer(data, dtype_of(name))
            return f"{found.dtype.name} {found.item()!r}"
    return None


def place_of(places: tuple[Location, ...]) -> str:
    """Return the file and line of code: `um.py:12`."""
    if not places:
        return ""
    file, line = places[0][:2]
    return f"{PurePath(file).name}:{line}"


def place_of_change(old: Code, new: Code) -> str:
    """Return the file and line of the first instruction of code that differs; empty if the lines are unknown."""
    try:
        before, after = (list(_steps(build_code(body, iter(places)))) for body, places in (old, new))
    # Another version of Python made one of them.
    except Exception:
        return ""
    pairs = itertools.zip_longest(before, after, fillvalue=(0, ""))
    line = next((line for (_, was), (line, step) in pairs if step != was), 0) or (after[-1][0] if after else 0)
    return f"{PurePath(new[1][0][0]).name}:{line}" if line and new[1] else ""


def _steps(code: CodeType) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each instruction, with those of nested code where it is loaded."""
    for step in dis.get_instructions(code):
        line = (step.positions and step.positions.lineno) or 0
        if isinstance(step.argval, CodeType):
            yield line, step.opname
            yield from _steps(step.argval)
        # Targets of jumps and prefixes of long numbers depend on the code that follows.
        elif step.opname != "EXTENDED_ARG":
            is_jump = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
            yield line, step.opname if is_jump else f"{step.opname} {step.argrepr}"


def _reached(reading: Reading) -> Iterator[Item]:
    """Iterate over the objects of a program, nearest to its root first."""
    queue = deque(references(reading.root))
    seen = set(queue)
    while queue:
        item = reading.items[queue.popleft()]
        yield item
        for number in references([item.args, item.fills, item.needs]):
            if number not in seen:
                seen.add(number)
                queue.append(number)
