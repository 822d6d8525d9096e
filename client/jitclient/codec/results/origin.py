"""What only a trace knows, such as a jaxpr: part of what `jax.vjp` gives, and so of results' trees.

Where the daemon traced, this process has a token instead, which goes back by name. Whoever looks inside gets what a
trace in this process gives.
"""

import functools
import threading
from collections.abc import Callable, Iterable
from types import CellType, FunctionType, MethodType
from typing import Any

from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.walker import Walker, describes
from jitclient.codec.reducers.attributes import attributes_of, slots_of
from jitclient.errors import CaptureError


class Opaque:
    """The `number`-th such thing of a program, which is named by a digest of what decides it."""

    __slots__ = ("__weakref__", "_find", "number", "packages", "program")

    def __init__(self, program: str, packages: tuple[str, ...], number: int, find: Callable[[int], Any]) -> None:
        self.program = program
        self.packages = packages
        self.number = number
        self._find = find

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # of Python's own protocols: not worth a trace
            raise AttributeError(name)
        return getattr(self._find(self.number), name)

    def __eq__(self, other: object) -> bool:
        return type(other) is Opaque and (self.program, self.number) == (other.program, other.number)

    def __hash__(self) -> int:
        return hash((self.program, self.number))

    def __repr__(self) -> str:
        return f"<part {self.number} of the trace of program {self.program[:12]}>"

    def __copy__(self) -> "Opaque":
        return self

    def __deepcopy__(self, memo: Any) -> "Opaque":
        return self


@describes(Opaque)
def _opaque(walker: Walker, token: Opaque) -> Value:
    walker.packages.update(token.packages)
    walker.has_opaque = True
    return Node("opaque", token, [token.program, token.number])


class Origin:
    """The trace that the opaque parts of one program's results come from, made again once it is needed.

    `packages` are those that the program refers to; `trace` gives the structure of the results as a trace in this
    process has it.
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
