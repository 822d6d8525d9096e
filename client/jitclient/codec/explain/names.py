"""What a user calls the functions, classes and modules of a captured program."""

from collections import deque
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from jitclient.codec.plain import Reference
from jitclient.codec.steps.reading import Item, Reading
from jitclient.codec.unpickler import from_bytes, references
from jitclient.codec.user_code.code import Location


class Names:
    """Names as in the user's files; the module of the captured function itself goes without saying."""

    def __init__(self, reading: Reading) -> None:
        self._items = reading.items
        self.main = next((item for item in _reached(reading) if item.op == "function"), None)
        self._home = _home_of(self.main)

    def of(self, number: int) -> str:
        """The name of a function or class."""
        item = self._items[number]
        if item.op == "class":
            return str(item.args[2])
        name = item.places[0][3].rpartition("<locals>.")[2] if item.places else str(item.args[2])
        return self.within(_home_of(item), name)

    def within(self, home: Any, name: str) -> str:
        """A name in the namespace that `home` refers to: `um.scale`."""
        if type(home) is not Reference or home == self._home:
            return name
        module = self._items[home].module
        return f"{module}.{name}" if module else name

    def argument_names(self, item: Item) -> tuple[list[str], list[str]]:
        """The positional arguments of a function, and what its closure holds."""
        (blob,) = self._items[item.args[0]].args
        body = from_bytes(blob)
        variables, free = (item.places[0][4], item.places[0][5]) if item.places else (body[9], body[12])
        return list(variables[: body[0]]), list(free)


def place_of(places: tuple[Location, ...], nested: int = 0) -> str:
    """File and line: `um.py:12`."""
    if nested >= len(places):
        return ""
    file, line = places[nested][:2]
    return f"{PurePath(file).name}:{line}"


def _reached(reading: Reading) -> Iterator[Item]:
    """The objects of a program, those nearest to its root first."""
    queue = deque(references(reading.root))
    seen = set(queue)
    while queue:
        item = reading.items[queue.popleft()]
        yield item
        for number in references([item.args, item.fills, item.needs]):
            if number not in seen:
                seen.add(number)
                queue.append(number)


def _home_of(function: Item | None) -> Any:
    return function.args[1] if function is not None else None
