"""What only a trace knows, such as a jaxpr: part of what `jax.vjp` gives, and so of results' trees.

Where the daemon traced, this process has a token instead, which goes back by name. Whoever looks inside gets what a
trace in this process gives.
"""

from collections.abc import Callable
from typing import Any

from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.walker import Walker, describes


class Opaque:
    """The `number`-th such thing of a program.

    Attributes:
        program: a digest of what decides the program.
        packages: those that it refers to.
    """

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
