"""The dependence of a function's results on the order of sets, which differs between processes.

Sets are sent in a canonical order, whatever their order in the client. So the daemon's copies, and the sets that code
makes in the daemon, have an order of their own. A function that may observe such an order is traced in the client,
where the order is that of the user's process.
"""

import dataclasses
import os
import weakref
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import COMPOUND, is_plain
from jitclient.capture.graph.nodes import Fill, Node, Value, nodes_in
from jitclient.capture.graph.set_use import SEEDED, UNKNOWN, Sets, bind, uses_of_order
from jitclient.capture.user_code.ownership import has_private_globals, is_user_class
from jitclient.core.digests import digest

_PROPERTIES = {"__pydantic_fields_set__": "model_fields_set"}
"""Attributes of pydantic's models that hold sets, and the properties by which code reads them."""

_NUMBERS = frozenset({bool, int, float, complex})

_seed_is_shared = False


def share_seed() -> None:
    """Declare that this process shares its hash seed with others, although PYTHONHASHSEED does not show it."""
    global _seed_is_shared
    _seed_is_shared = True


def has_shared_seed() -> bool:
    """Return whether other processes have the hash seed of this one."""
    return _seed_is_shared or os.environ.get("PYTHONHASHSEED", "").isdecimal()


class SetOrder(NamedTuple):
    """The dependence of a function on the order of sets."""

    is_seeded: bool
    """Whether the order is determined by the hash seed and by `observed`; if not, its cause is unknown."""
    observed: str
    """A digest of the orders that the function's sets have in this process."""
    where: str
    """The name of the code that may observe an order, or of the object that holds the set."""

    @property
    def key(self) -> tuple[str, int, str] | None:
        """A key that this process shares with others in which sets have the same order; None if there are none."""
        return ("order of sets", hash("jitserver"), self.observed) if self.is_seeded and has_shared_seed() else None

    def __str__(self) -> str:
        differs = f"{self.where} may depend on set iteration order, which differs between processes"
        return f"{differs}. Iterate over sorted(...)."


def set_order(roots: Value) -> SetOrder | None:
    """Return how a walked function depends on the order of sets; None if it does not."""
    found = _Found()
    for node in _reached(roots):
        found.add_code_of(node)
        for name, value in _slots(node):
            found.add(node, name, value)
    found.add_unnamed(roots, None)
    uses = found.unnamed + uses_of_order(found.codes, found.sets, found.kind_of)
    if not uses:
        return None
    observed = digest(to_bytes(sorted(found.orders))).hex()
    is_seeded = all(kind == SEEDED for kind, _ in uses)
    return SetOrder(is_seeded, observed, min(where for _, where in uses))


class _Found:
    """The sets that a capture holds, under their names where they have any, and the code that may use them."""

    def __init__(self) -> None:
        self.codes: list[CodeType] = []
        self.sets: Sets = {}
        self.unnamed: list[tuple[str, str]] = []
        self.orders: set[tuple[bytes, ...]] = set()

    def kind_of(self, items: Any) -> str | None:
        """Return what determines the order of a set; None if the daemon's copy has the same order as this one."""
        if len(items) < 2:
            return None
        if not all(map(is_plain, items)):
            return UNKNOWN
        pickled = {item: to_bytes(item) for item in items}
        in_order = sorted(items, key=pickled.__getitem__)
        if all(type(item) in _NUMBERS for item in items) and list(type(items)(in_order)) == list(items):
            return None
        self.orders.add(tuple(pickled[item] for item in items))
        return SEEDED if all(map(_is_hashed_by_value, items)) else UNKNOWN

    def add_code_of(self, node: Node) -> None:
        """Record a node's code that may observe set order.

        This is the user's code, and installed code that closes over a set. Other installed code is trusted.
        """
        if node.op == "function" and self._may_observe(node):
            self.codes.append(node.obj.__code__)

    def add(self, node: Node, name: Any, value: Value) -> None:
        """Record the sets in a value that a node holds under a name, or under None."""
        whole = _set_of(value)
        if name is None or whole is None:
            self.add_unnamed(value, node)
        else:
            bind(self.sets, name, self.kind_of(whole))

    def add_unnamed(self, value: Value, holder: Node | None) -> None:
        """Record the sets in a value that code may reach in ways that its bytecode does not show."""
        for items in _sets_in(value):
            kind = self.kind_of(items)
            # Ask the holder for a name only if necessary, because that may run its own code.
            if kind is not None:
                self.unnamed.append((kind, "a static value" if holder is None else _name_of(holder)))

    def _may_observe(self, node: Node) -> bool:
        # JAX's own closures, such as those over axis names, make the same program in any order.
        if _is_of_dataclass(node.obj) or str(node.obj.__globals__.get("__name__")).startswith("jax."):
            return False
        closure = [fill.args[0] for cell in node.args[3] for fill in cell.fills]
        return has_private_globals(node.obj) or any(_set_of(value) is not None for value in closure)


def _is_of_dataclass(func: Any) -> bool:
    """Return whether `dataclasses` made a function, which stores, compares or shows fields with any contents."""
    names = ("__init__", "__eq__", "__hash__", "__repr__")
    return func.__name__ in names and func.__code__.co_filename == "<string>"


def _is_hashed_by_value(item: Any) -> bool:
    if type(item) in (tuple, frozenset):
        return all(map(_is_hashed_by_value, item))
    return type(item) in _NUMBERS or type(item) in (str, bytes)


def _set_of(value: Value) -> Any:
    """Return the set that a value is or stands for, or None."""
    if type(value) is not Node:
        return value if type(value) is frozenset else None
    is_instance = value.op in ("call", "new") and isinstance(value.obj, (set, frozenset, weakref.WeakSet))
    return value.obj if is_instance or value.op in ("set", "frozenset") else None


def _sets_in(value: Value) -> Iterator[Any]:
    """Yield the sets that a value is, stands for or contains."""
    if type(value) in COMPOUND:
        for part in value:
            yield from _sets_in(part)
    elif (found := _set_of(value)) is not None:
        yield found


def _reached(roots: Value) -> list[Node]:
    found = dict.fromkeys(nodes_in(roots))
    order = list(found)
    # The loop appends to the list that it iterates over.
    for node in order:
        for child in node.leads_to():
            if child not in found:
                found[child] = None
                order.append(child)
    return order


def _slots(node: Node) -> Iterator[tuple[Any, Value]]:
    """Yield the values that a node holds, each with the name by which code reads it, or None.

    The name of a local variable is a pair with its code object.
    """
    match node.op:
        case "bind":
            yield node.args[1], node.args[2]
        case "patch":
            yield node.args[2][-1], node.args[3]
        case "cell":
            yield from ((fill.label.removeprefix("closure "), fill.args[0]) for fill in node.fills)
        case "function":
            yield from _slots_of_function(node)
        case "class":
            yield from _pairs(node.args[4])
            yield from ((None, fill.args) for fill in node.fills)
        case "new" if isinstance(node.obj, dataclasses.Field):
            yield from ((node.obj.name, value) for fill in node.fills for _, value in _state(fill))
        case "new" | "bare" if is_user_class(type(node.obj)) or type(node.obj).__module__.startswith("jax."):
            for fill in node.fills:
                yield from _attributes(_state(fill)) if fill.op == "state" else [(None, fill.args)]
        case "set" | "frozenset":
            yield from ()
        case _:
            yield None, node.args
            yield from ((None, fill.args) for fill in node.fills)


def _slots_of_function(node: Node) -> Iterator[tuple[Any, Value]]:
    func = node.obj
    names = func.__code__.co_varnames[: func.__code__.co_argcount]
    for fill in node.fills:
        if fill.op == "defaults" and type(fill.args[0]) is tuple:
            given = fill.args[0]
            yield from (((func.__code__, n), v) for n, v in zip(names[len(names) - len(given) :], given, strict=True))
        elif fill.op == "kwdefaults":
            yield from (((func.__code__, name), value) for name, value in fill.args[0])
        elif fill.op == "attributes":
            yield from _pairs(fill.args[0])


def _state(fill: Fill) -> list[Value]:
    return [pair for pairs in fill.args for pair in pairs] if fill.op == "state" else []


def _attributes(pairs: list[Value]) -> Iterator[tuple[Any, Value]]:
    for name, value in _pairs(pairs):
        yield name, value
        if name in _PROPERTIES:
            yield _PROPERTIES[name], value


def _pairs(pairs: list[Value]) -> Iterator[tuple[Any, Value]]:
    for name, value in pairs:
        yield name if isinstance(name, str) else None, value


def _name_of(node: Node) -> str:
    obj = node.obj
    return getattr(obj, "__qualname__", None) or f"a {type(obj).__name__}"
