"""The trace that opaque parts of results come from: made again in this process, once somebody looks inside one."""

import functools
import threading
from collections.abc import Callable, Iterable
from types import CellType, FunctionType, MethodType
from typing import Any

from jitclient.codec.reducers.attributes import attributes_of, slots_of
from jitclient.codec.reducers.opaque import Opaque
from jitclient.errors import CaptureError


class Origin:
    """Of the results of one program.

    Args:
        program: a digest of what decides it.
        packages: those that it refers to.
        trace: gives the structure of the results as a trace in this process has it.
    """

    def __init__(self, program: str, packages: tuple[str, ...], trace: Callable[[], Any]) -> None:
        self._program = program
        self._packages = packages
        self._trace = trace
        self._lock = threading.RLock()  # a function may look inside what it made before
        self._tokens: dict[int, Opaque] = {}
        self._found: dict[int, Any] = {}
        self.structure: Any = None
        """That of the results, with tokens."""

    def token(self, number: int) -> Opaque:
        """What stands for a part."""
        if number not in self._tokens:
            self._tokens[number] = Opaque(self._program, self._packages, number, self._part)
        return self._tokens[number]

    def _part(self, number: int) -> Any:
        with self._lock:
            if not self._found:
                self._found = _matched(self.structure, self._trace())
        try:
            return self._found[number]
        except KeyError:
            raise CaptureError("a trace in this process has not what the daemon's had") from None


def _matched(made: Any, real: Any) -> dict[int, Any]:
    """What stands in `real` where `made` has tokens, by their numbers."""
    found: dict[int, Any] = {}
    seen: dict[int, Any] = {}  # ids are only unique among living objects
    todo = [(made, real)]
    while todo:
        one, other = todo.pop()
        if type(one) is Opaque:
            found[one.number] = other
        elif type(one) is type(other) and id(one) not in seen:
            seen[id(one)] = one
            inside = list(_inside(one)), list(_inside(other))
            if len(inside[0]) == len(inside[1]):
                todo += zip(*inside, strict=True)
    return found


def _inside(obj: Any) -> Iterable[Any]:
    if isinstance(obj, tuple | list):
        return obj
    if isinstance(obj, dict):
        return obj.values()
    if isinstance(obj, functools.partial):
        return obj.func, obj.args, obj.keywords
    if isinstance(obj, MethodType):
        return obj.__func__, obj.__self__
    if isinstance(obj, FunctionType):
        return obj.__closure__, obj.__defaults__, obj.__kwdefaults__
    if isinstance(obj, CellType):
        return (obj.cell_contents,)
    if type(obj).__name__ == "PyTreeDef":
        return obj.node_data(), obj.children()
    if isinstance(obj, type):
        return ()
    return *attributes_of(obj).values(), *slots_of(obj).values()
