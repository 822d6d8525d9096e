"""Objects of a capture by number: those that both sides can name, and those that can keep a value of a trace."""

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

from jitclient.codec.graph.nodes import Node
from jitclient.codec.pickler import to_bytes
from jitclient.codec.plain import is_plain

_HOLDING = ("namespace", "cell", "new", "bare")


class Numbering:
    """Extras come first, then every object that the program makes and that can be named.

    Objects are found by identity; plain values among the extras, which have none, by value.
    """

    def __init__(self, extras: tuple[Any, ...], named: list[Any]) -> None:
        self._objects = [*extras, *named]
        self._indices: dict[int | bytes, int] = {}
        for index, obj in enumerate(self._objects):
            key = _key(obj) if index < len(extras) else id(obj)
            self._indices.setdefault(key, index)

    def index_of(self, obj: object) -> int | None:
        """The index of a captured object that both sides can name, or None."""
        index = self._indices.get(id(obj))
        return index if index is not None else self._indices.get(_key(obj))

    def object_at(self, index: int) -> Any:
        """The object with this index; IndexError if there is none."""
        if index < 0:
            raise IndexError(index)
        return self._objects[index]


def _key(obj: Any) -> int | bytes:
    return to_bytes(obj) if is_plain(obj) else id(obj)


class Holders:
    """What traced code can keep a value in: globals, variables of closures, attributes of instances."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._objects: dict[int | None, Any] = {node.index: node.obj for node in nodes if node.op in _HOLDING}

    def put(self, number: int, name: str, value: Any) -> None:
        """Has one of the objects keep a value: under a name, if it is no cell."""
        holder = self._objects[number]
        if isinstance(holder, CellType):
            holder.cell_contents = value
        elif isinstance(holder, dict):
            holder[name] = value
        elif hasattr(holder, "__dict__"):
            vars(holder)[name] = value

    def any_attribute(self, condition: Callable[[Any], bool]) -> bool:
        """Whether a value that an instance holds now is so."""
        instances = [obj for obj in self._objects.values() if not isinstance(obj, (CellType, dict))]
        return any(condition(value) for obj in instances for value in list(getattr(obj, "__dict__", {}).values()))
