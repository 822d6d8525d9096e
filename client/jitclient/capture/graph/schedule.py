"""The order in which a program makes and completes objects.

An object is made when everything required to make it exists. Completing an object is a later step, so that cycles need
no special case. Only where making an object runs code (`__reduce__`, a metaclass), the objects that this code
receives are completed first, as far as that is possible.
"""

from collections import deque
from collections.abc import Collection

from jitclient.capture.budget import Budget
from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.graph.nodes import Fill, Node, Value, fingerprint, nodes_in
from jitclient.errors import CaptureError

_RUN_CODE = frozenset({"call", "cached", "new", "jit", "partial", "frozenset", "treedef"})
_FILLS_RUN_CODE = frozenset({"add", "append", "call_on", "call_setter", "register", "set_items", "setstate"})
# Position of a class step's namespace in its arguments.
_ATTRIBUTES_OF_CLASS = 4

Step = Node | tuple[Node, Fill]


class Schedule:
    """An ordering of the steps of a graph; `steps` is the resulting program."""

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget
        self.steps: list[Step] = []
        self._count = 0
        self._making: set[Node] = set()
        self._completed: set[Node] = set()
        self._settled: set[Node] = set()
        self._leads: dict[Node, list[Node]] = {}
        self._waiting: deque[tuple[Node, Fill]] = deque()
        self._incomplete: deque[Node] = deque()

    def add(self, root: Value) -> None:
        """Make and complete the nodes in a value.

        Raises:
            CaptureError: Objects need each other, or themselves, before they can be made.
        """
        for node in nodes_in(root):
            self._make(node)
        while self._incomplete or self._waiting:
            while self._incomplete:
                self._complete(self._incomplete.popleft())
            if self._waiting:
                node, fill = self._waiting.popleft()
                if not self._try_fill(node, fill):
                    raise CaptureError("cyclic construction: each object needs another one before it can be made")

    def _make(self, node: Node) -> None:
        if node.index is not None:
            return
        if node in self._making:
            raise CaptureError("cyclic construction: an object is needed to make itself")
        self._making.add(node)
        if node.op == "class":
            self._postpone_attributes(node)
        for child in node.children():
            self._make(child)
        if runs_code(node):
            self._complete_reachable(node.children())
        self._making.discard(node)
        node.index = self._count
        self._count += 1
        self.steps.append(node)
        self._incomplete.append(node)

    def _complete(self, node: Node) -> None:
        """Complete an object and all that it leads to, except for steps with objects that cannot be made yet."""
        if node in self._completed or node.index is None:
            return
        self._completed.add(node)
        for child, _ in node.needs:
            if not self._can_make(child):
                self._waiting.append((child, Fill("", [child])))
                continue
            self._make(child)
            if self._making:
                self._complete(child)
        for fill in node.fills:
            if not self._try_fill(node, fill):
                self._waiting.append((node, fill))

    def _complete_reachable(self, nodes: list[Node]) -> None:
        """Complete objects that code will read, and every object that it can reach from them."""
        if self._budget is not None:
            self._budget.check()
        seen: set[Node] = set()
        todo = list(nodes)
        while todo:
            node = todo.pop()
            if node in seen or node in self._settled or node.index is None:
                continue
            seen.add(node)
            self._complete(node)
            todo += self._led_to(node)
        self._fill_waiting(seen)
        if not self._making and not self._waiting:
            self._settled |= seen

    def _fill_waiting(self, nodes: Collection[Node]) -> None:
        """Run the waiting steps of nodes if they can run now: a `super()` cell, for example, waits for its class.

        Steps that still cannot run keep waiting.
        """
        for each in [each for each in self._waiting if each[0] in nodes]:
            # The step may have been run along with a previous one.
            if each in self._waiting:
                self._waiting.remove(each)
                if not self._try_fill(*each):
                    self._waiting.append(each)

    def _led_to(self, node: Node) -> list[Node]:
        """Return the nodes that an object leads to. The result is stored: a node gets no additions once it is made."""
        if node not in self._leads:
            self._leads[node] = node.leads_to()
        return self._leads[node]

    def _try_fill(self, node: Node, fill: Fill) -> bool:
        children = nodes_in(fill.args)
        if not all(map(self._can_make, children)):
            return False
        for child in children:
            self._make(child)
        # JAX reads the fields of a dataclass when the class is registered.
        if fill.op == "register":
            children += node.children()
        self._complete_reachable(children if fill.op in _FILLS_RUN_CODE else _keys(fill))
        if self._making:
            for child in children:
                self._complete(child)
        if fill.op:
            self.steps.append((node, fill))
        return True

    def _can_make(self, node: Node) -> bool:
        """Return whether an object is made, or can be made while the objects in `_making` are unfinished."""
        seen: set[Node] = set()
        todo = [node] if self._making else []
        while todo:
            at = todo.pop()
            if at in self._making:
                return False
            if at not in seen and at.index is None:
                seen.add(at)
                todo += at.children()
        return True

    def _postpone_attributes(self, node: Node) -> None:
        """Postpone the attributes of a class that need the class itself: they are set once the class exists.

        If no user code runs meanwhile, another value keeps the attribute's place.
        """
        now = []
        for pair in node.args[_ATTRIBUTES_OF_CLASS]:
            if all(map(self._can_make, nodes_in(pair))):
                now.append(pair)
            else:
                node.fill("set_attribute", *pair)
                now += [[pair[0], None]] * (not runs_code(node))
        args = list(node.args)
        args[_ATTRIBUTES_OF_CLASS] = now
        node.replace_args(args)


def _keys(fill: Fill) -> list[Node]:
    """Return the keys of a dictionary, which are hashed when it is filled: this may run code of their class."""
    if fill.op != "update" or type(fill.args[0]) is dict:
        return []
    return [node for key, _ in fill.args[0] for node in nodes_in(key)]


def runs_code(node: Node) -> bool:
    """Return whether making an object may run code that reads the objects it receives."""
    return node.op in _RUN_CODE or (node.op == "class" and node.args[0] != "exact")


def order_sets(unordered: list[Node]) -> None:
    """Sort the items of sets into an order that does not depend on hashes.

    Items with an identity come last, sorted by their fingerprints.
    """
    pending = set(unordered)

    def key(value: Value) -> bytes:
        return fingerprint_of(value, pending)

    for node in unordered:
        items = _items(node)
        held = [item for item in items if nodes_in(item)]
        items[:] = sorted((item for item in items if not nodes_in(item)), key=to_bytes) + sorted(held, key=key)
        pending.discard(node)


def fingerprint_of(value: Value, unordered: Collection[Node] = ()) -> bytes:
    """Return the digest of everything that is reachable from a value, except for the items of `unordered` sets."""

    def parts(node: Node) -> list[Value]:
        if node in unordered:
            return [node.op]
        fills = [[fill.op, *fill.args] for fill in node.fills]
        return [node.op, node.args, fills, [need for need, _ in node.needs]]

    def reference(value: Value) -> Node | None:
        return value if type(value) is Node else None

    return fingerprint(Node("item", None, [value]), parts, reference)


def _items(node: Node) -> list[Value]:
    items: list[Value] = (node.args if node.op == "frozenset" else node.fills[0].args)[0]
    return items
