"""The walk from a function to all that it depends on; the result is a graph of nodes.

How each kind of object is described stands in the files that register a describer here. A
describer returns at once with a node or another value; what it holds is described later, from a
queue, so that deep structures do not exhaust the stack.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import CellType
from typing import Any

from jitclient.capture.ambient.inputs import ambient_name, message_of
from jitclient.capture.codec.plain import ATOMS, PLAIN, Reduced, is_plain
from jitclient.capture.graph.nodes import Node, Value, type_name
from jitclient.capture.graph.watch import Watch
from jitclient.capture.user_code.code import Kept, canonical_code
from jitclient.capture.user_code.installed import package_of
from jitclient.capture.user_code.names import Home, holder_of, home_of
from jitclient.errors import AmbientInput, CaptureError

Describer = Callable[["Walker", Any], Value]

_describers: dict[type, Describer] = {}


def describes(*kinds: type) -> Callable[[Describer], Describer]:
    """Register how objects of exactly these types are described; for `object`, those of types that nobody claims."""

    def register(describer: Describer) -> Describer:
        _describers.update(dict.fromkeys(kinds, describer))
        return describer

    return register


def describes_as(
    op: str, *kinds: type, by_name: bool = False
) -> Callable[[Callable[["Walker", Node, Any], None]], Describer]:
    """Register how nodes of `op` are described that stand for objects of exactly these types; without types, for
    another describer to call. `by_name`: an object that an installed module holds is captured by its name.
    """

    def register(describe: Callable[["Walker", Node, Any], None]) -> Describer:
        def describer(walker: Walker, obj: Any) -> Value:
            home = home_of(obj) if by_name else None
            if home is not None:
                return walker.installed(home)
            node = Node(op, obj)
            walker.later(node, lambda: describe(walker, node, obj))
            return node

        return describes(*kinds)(describer)

    return register


class Walker:
    """Turns objects into nodes, each object once.

    `options` name what is captured only because some code in reach reads it: "docs", "locals",
    "annotations" and "qualnames". The walk finds out whether that is so; `capture/dump.py` then walks again.
    """

    def __init__(self, options: frozenset[str] = frozenset()) -> None:
        self.options = options
        self.words: set[str] = set()
        self.watch = Watch()
        self.failed: list[Node] = []
        self.unordered: list[Node] = []
        self.patches: set[Home] = set()  # names of installed modules whose value travels
        self.packages: set[str] = set()
        self.caches: set[int] = set()
        self.keyed_by_address: set[int] = set()  # what an installed class keeps to itself: maybe a cache, by `id`
        self.namespaces: dict[int, Node] = {}
        self.bindings: dict[Any, Node] = {}
        self.codes: dict[bytes, Node] = {}
        self._known: dict[int, Value] = {}
        self._alive: list[Any] = []  # ids are only unique among living objects
        self._queue: deque[tuple[Callable[[], None], Node]] = deque()
        self._at_rest: list[Callable[[], None]] = []

    def value(self, obj: Any) -> Value:
        """What stands for an object in the graph."""
        kind = type(obj)
        if kind in ATOMS:
            return obj
        if kind is tuple:
            return tuple([self.value(part) for part in obj])
        if kind is slice:
            return Reduced("slice", (self.value(obj.start), self.value(obj.stop), self.value(obj.step)))
        if kind in PLAIN and is_plain(obj):
            return obj
        known = self._known.get(id(obj))
        if known is None:
            known = self._known[id(obj)] = self._described(obj)
            self._alive.append(obj)
        return known

    def cell_of_client(self, cell: CellType) -> Node:
        """The node of a cell, whose content is not described."""
        if id(cell) not in self._known:
            self._known[id(cell)] = Node("cell", cell)
            self._alive.append(cell)
        return self._known[id(cell)]  # type: ignore[no-any-return]

    def pairs(self, mapping: Mapping[Any, Any]) -> list[Value]:
        """The items of a mapping, as structure of a step."""
        return [[self.value(key), self.value(value)] for key, value in mapping.items()]

    def installed(self, home: Home) -> Value:
        """What stands for an object of an installed module."""
        self.uses_package(home[0])
        self.words.add(home[1])  # user code may have given it another name
        return Reduced("installed", home)

    def by_reference(self, obj: Any) -> Value:
        """What stands for an object that only an installed module can tell."""
        home = holder_of(obj)
        if home is None:
            raise CaptureError(f"{type_name(obj)} cannot be captured")
        return self.installed(home)

    def leaves_caches_empty(self, held: Iterable[Any]) -> None:
        """Note weak containers that belong to installed code: what they hold depends on what ran before."""
        self.caches.update(id(each) for each in held if type(each).__module__ in ("weakref", "_weakrefset"))

    def address(self, number: int) -> Node:
        """What stands for a number that is the `id` of an object, if the capture makes that object."""
        node = Node("address", number, [number])

        def look() -> None:
            target = self._known.get(number)
            if type(target) is Node:
                node.replace_args([target])

        self.at_rest(look)
        return node

    def uses_package(self, module: str) -> None:
        """Note that the capture refers to an installed module."""
        package = package_of(module)
        if package is not None:
            self.packages.add(package)

    def later(self, node: Node, describe: Callable[[], None]) -> None:
        """Describe what a node holds when the present describer is done."""
        self._queue.append((describe, node))

    def at_rest(self, look: Callable[[], None]) -> None:
        """Look at what the walk has met each time that nothing is queued; what is queued then is described too."""
        self._at_rest.append(look)

    def made(self, obj: Any) -> bool:
        """Whether the capture makes an object anew, as far as the walk has come."""
        return type(self._known.get(id(obj))) is Node

    def run(self) -> None:
        """Describe everything that is queued, and what that leads to."""
        while self._queue:
            describe, node = self._queue.popleft()
            try:
                describe()
            except RecursionError:
                raise
            except Exception as error:  # describing may run any code of the object's
                self._fail(node, error)
            for look in () if self._queue else self._at_rest:
                look()

    def code(self, func_code: Any) -> Node:
        """The node of a code object: equal code is one node."""
        blob = canonical_code(func_code, Kept("docs" in self.options, "locals" in self.options)).blob
        return self.codes.setdefault(blob, Node("code", func_code, [blob]))

    def _fail(self, node: Node, error: Exception) -> Node:
        """Have a node stand for what cannot be captured, which is an error only if it is sure to be needed."""
        if not isinstance(error, CaptureError):  # the object did not let itself be looked at
            error = CaptureError(f"{type_name(node.obj)} cannot be captured: {type(error).__name__}: {error}")
        node.op, node.error = "trap", error
        node.args = [isinstance(error, AmbientInput), str(error)]
        node.fills, node.needs = [], []
        self.failed.append(node)
        return node

    def _described(self, obj: Any) -> Value:
        try:
            name = ambient_name(obj)
            if name is not None:
                raise AmbientInput(message_of(name))
            return _describers.get(type(obj), _describers[object])(self, obj)
        except RecursionError:
            raise
        except Exception as error:
            return self._fail(Node("trap", obj), error)
