"""The trace that opaque parts of results come from: made again in this process, once somebody looks inside one."""

import functools
import threading
from collections.abc import Callable, Iterable
from types import CellType, FunctionType, MethodType
from typing import Any

from jitclient.capture.attributes import attributes_of, slots_of
from jitclient.capture.opaque import Opaque
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
        self._lock = threading.Lock()
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
                _match(self.structure, self._trace(), self._found, set())
        try:
            return self._found[number]
        except KeyError:
            raise CaptureError("a trace in this process has not what the daemon's had") from None


def _match(made: Any, real: Any, found: dict[int, Any], seen: set[int]) -> None:
    """Notes what stands in `real` where `made` has tokens."""
    if type(made) is Opaque:
        found[made.number] = real
    elif type(made) is type(real) and id(made) not in seen:
        seen.add(id(made))
        for pair in zip(_inside(made), _inside(real), strict=False):
            _match(*pair, found, seen)


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
