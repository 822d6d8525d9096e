"""What of a capture traced code can keep a value in: globals, variables of closures, attributes of instances."""

from collections.abc import Callable, Iterable
from types import CellType
from typing import Any

from jitclient.codec.graph.nodes import Node

_HOLDING = ("namespace", "cell", "new", "bare")


class Holders:
    """Those objects, by their numbers in the program of a capture."""

    def __init__(self, steps: Iterable[Any]) -> None:
        nodes = [step for step in steps if isinstance(step, Node) and step.op in _HOLDING]
        self._objects: dict[int | None, Any] = {node.index: node.obj for node in nodes}

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
