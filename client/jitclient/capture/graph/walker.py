"""The walk from a function to everything that it depends on, which results in a graph of nodes.

Other modules register a describer here for each kind of object. A describer immediately returns a node or another
value. The contents of the object are described later, from a queue, so that deep structures do not exhaust the stack.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import CellType, ModuleType
from typing import Any

from jitclient.capture.ambient.inputs import ambient_name, message_of
from jitclient.capture.budget import Budget
from jitclient.capture.codec.plain import ATOMS, PLAIN, Reduced, is_plain
from jitclient.capture.graph.nodes import Node, Value, type_name
from jitclient.capture.graph.watch import Watch
from jitclient.capture.user_code.code import Kept, canonical_code
from jitclient.capture.user_code.installed import package_of
from jitclient.capture.user_code.names import Home, holder_of, home_of
from jitclient.capture.user_code.ownership import is_user_class
from jitclient.errors import AmbientInput, CaptureError

Describer = Callable[["Walker", Any], Value]

_describers: dict[type, Describer] = {}


def describes(*kinds: type) -> Callable[[Describer], Describer]:
    """Register a describer for objects of exactly these types; `object` stands for all types without a describer."""

    def register(describer: Describer) -> Describer:
        _describers.update(dict.fromkeys(kinds, describer))
        return describer

    return register


def describes_as(
    op: str, *kinds: type, by_name: bool = False
) -> Callable[[Callable[["Walker", Node, Any], None]], Describer]:
    """Register a function that completes the description of nodes for objects of exactly these types.

    Args:
        op: The operation of the nodes.
        kinds: The types. Without any, the result is a describer that other describers can call.
        by_name: Whether an object that an installed module holds is captured by its name.
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
    """A walk that turns objects into nodes, each object once.

    `options` are the parts of code and of objects that are captured only because some reachable code reads them:
    "docs", "locals", "annotations", "qualnames", "locks", "errors", and attributes in `left_out`. The walk finds out
    which of them are read; `capture/dump.py` then walks again.
    """

    def __init__(self, options: frozenset[str] = frozenset(), budget: Budget | None = None) -> None:
        self.options = options
        self.budget = budget
        self.words: set[str] = set()
        self.left_out: set[str] = set()
        """Attributes of objects that are captured only if reachable code names them."""
        self.watch = Watch()
        self.failed: list[Node] = []
        self.unordered: list[Node] = []
        self.patches: set[Home] = set()  # names in installed modules whose values are captured
        self.packages: set[str] = set()
        self.held: set[Home] = set()  # objects of installed modules that are captured by their names
        self.caches: set[int] = set()
        # Ids of attribute values of installed classes' instances: dictionaries among them may be caches keyed by id.
        self.keyed_by_address: set[int] = set()
        self.namespaces: dict[int, Node] = {}
        self.bindings: dict[Any, Node] = {}
        self.codes: dict[bytes, Node] = {}
        self._known: dict[int, Value] = {}
        self._alive: list[Any] = []  # so that ids stay unique
        self._queue: deque[tuple[Callable[[], None], Node]] = deque()
        self._on_idle: list[Callable[[], None]] = []

    def value(self, obj: Any) -> Value:
        """Return the value that represents an object in the graph."""
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

    def client_only_cell(self, cell: CellType) -> Node:
        """Return the node of a closure cell whose content is not described."""
        if id(cell) not in self._known:
            self._known[id(cell)] = Node("cell", cell)
            self._alive.append(cell)
        return self._known[id(cell)]  # type: ignore[no-any-return]

    def pairs(self, mapping: Mapping[Any, Any]) -> list[Value]:
        """Return the items of a mapping as arguments of a step: a list of pairs."""
        return [[self.value(key), self.value(value)] for key, value in mapping.items()]

    def installed(self, home: Home) -> Value:
        """Return the value that represents an object of an installed module."""
        self.uses_package(home[0])
        self.held.add(home)
        # User code may refer to the object by another name.
        self.words.add(home[1])
        return Reduced("installed", home)

    def by_reference(self, obj: Any) -> Value:
        """Return the value that represents an object by the name under which an installed module holds it.

        Raises:
            CaptureError: No installed module holds the object.
        """
        home = holder_of(obj)
        if home is None:
            raise CaptureError(f"{type_name(obj)} cannot be captured")
        return self.installed(home)

    def leaves_caches_empty(self, held: Iterable[Any]) -> None:
        """Record weak containers of installed code, which are captured empty: their contents depend on earlier runs."""
        self.caches.update(id(each) for each in held if type(each).__module__ in ("weakref", "_weakrefset"))

    def address(self, number: int) -> Node:
        """Return a node for a number that is the `id` of an object, if the capture makes that object."""
        node = Node("address", number, [number])

        def look() -> None:
            target = self._known.get(number)
            if type(target) is Node:
                node.replace_args([target])

        self.on_idle(look)
        return node

    def uses_package(self, module: str) -> None:
        """Record that the capture refers to an installed module."""
        package = package_of(module)
        if package is not None:
            self.packages.add(package)

    def later(self, node: Node, describe: Callable[[], None]) -> None:
        """Queue a function that describes the contents of a node after the current describer has returned."""
        self._queue.append((describe, node))

    def on_idle(self, look: Callable[[], None]) -> None:
        """Register a function to be called each time the queue is empty; it may queue further descriptions."""
        self._on_idle.append(look)

    def made(self, obj: Any) -> bool:
        """Return whether the capture makes a new object in place of this one, as far as the walk has progressed."""
        return type(self._known.get(id(obj))) is Node

    def is_address(self, number: int) -> bool:
        """Return whether a number is the `id` of an object that the walk has met."""
        return number in self._known

    def run(self) -> None:
        """Describe everything in the queue, and everything that these objects lead to."""
        while self._queue:
            if self.budget is not None:
                self.budget.check()
            describe, node = self._queue.popleft()
            try:
                describe()
            except RecursionError:
                raise
            # A describer may run code of the object, which may raise any exception.
            except Exception as error:
                self._fail(node, error)
            for look in () if self._queue else self._on_idle:
                look()

    def code(self, func_code: Any) -> Node:
        """Return the node of a code object. Equal code objects share one node."""
        blob = canonical_code(func_code, Kept("docs" in self.options, "locals" in self.options)).blob
        return self.codes.setdefault(blob, Node("code", func_code, [blob]))

    def _fail(self, node: Node, error: Exception) -> Node:
        """Make a node represent an object that cannot be captured: an error only if it is certain to be needed."""
        # Code of the object may have raised an exception of any other type.
        if not isinstance(error, CaptureError):
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
            return _describers.get(_kind_of(obj), _describers[object])(self, obj)
        except RecursionError:
            raise
        except Exception as error:
            return self._fail(Node("trap", obj), error)


def _kind_of(obj: Any) -> type:
    """Return the type of an object; that of modules for the stand-in with which a package loads one of its own late."""
    kind = type(obj)
    is_stand_in = issubclass(kind, ModuleType) and package_of(vars(obj)["__name__"]) and not is_user_class(kind)
    return ModuleType if is_stand_in else kind
