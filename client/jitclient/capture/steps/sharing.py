"""Identical definitions of classes share one class.

JAX's registry of pytrees never forgets a class, so a class that is loaded again must be the one
that was loaded before. What is shared is a group: a class and everything that its definition
reaches, so that identities within it hold. A group that holds anything mutable is not shared,
because one capture could see what another one wrote. Several equal definitions in one program
are several classes: the first is shared with the first, the second with the second.

The functions of a group get namespaces of their own, with no more in them than the group reads:
a class that JAX keeps for ever must not keep the rest of a capture.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.codec.unpickler import references
from jitclient.capture.graph.nodes import fingerprint
from jitclient.capture.steps.format import Item
from jitclient.capture.user_code.registry import is_registered

loading = threading.RLock()
"""Held while a program runs: what it shares must not change meanwhile."""

_living: "weakref.WeakValueDictionary[bytes, Group]" = weakref.WeakValueDictionary()
_kept: dict[bytes, "Group"] = {}  # those whose class JAX keeps
_classes: "weakref.WeakSet[type]" = weakref.WeakSet()

_MUTABLE = frozenset(
    {"alias", "bytearray", "dict", "fresh", "list", "names", "object_array", "set", "source"} | {"weakref", "whole"}
)
_IMMUTABLE_MAKERS = (
    *("_collections", "_operator", "dataclasses", "functools", "inspect", "operator", "re"),
    *("types", "typing", "jax", "jaxlib", "numpy._core", "chex", "equinox", "optax"),
    *("flax.core", "flax.linen", "flax.struct", "flax.typing"),
)
"""Modules and packages whose objects do not change once they are made, or only as caches do."""

_CONTAINERS = frozenset({"dict", "list", "set"})
_IMMUTABLE_BUILTINS = frozenset({"property", "staticmethod", "classmethod", "getattr", "object"})
_SET_ON_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
_NOT_SUBSTITUTED = frozenset({"bind", "code", "flags", "namespace", "of_client", "patch", "trap"})


def class_count() -> int:
    """How many distinct user classes this process has made from captures and still holds."""
    return len(_classes)


def note_class(cls: type) -> None:
    """Count a class that a capture made."""
    _classes.add(cls)


def is_captured_class(cls: type) -> bool:
    """Whether a class was made from a capture."""
    return cls in _classes


class Group:
    """A class and all that its definition reaches, once made."""

    def __init__(self, key: bytes, numbers: list[int]) -> None:
        self.key = key
        self.numbers = numbers
        self.made: list[Any] = []
        self._modules: dict[int, ModuleType] = {}
        self._was: list[tuple[type | FunctionType, dict[str, Any]]] = []

    def module(self, number: int, new: Callable[[], ModuleType]) -> ModuleType:
        """The group's own version of a namespace."""
        return self._modules.setdefault(number, new())

    def publish(self, objects: list[Any]) -> None:
        """Offer the group to later loads."""
        self.made = [objects[number] for number in self.numbers]
        self._modules = {}
        self._was = [(obj, _state(obj)) for obj in self.made if _can_be_set_on(obj)]
        _living[self.key] = self
        if any(isinstance(obj, type) and is_registered(obj) for obj, _ in self._was):
            _kept[self.key] = self
        else:
            _kept.pop(self.key, None)

    def is_intact(self) -> bool:
        """Whether nothing has set an attribute of a class or a function of it since it was made."""
        return all(_is_as_it_was(_state(obj), was) for obj, was in self._was)


def _can_be_set_on(obj: Any) -> bool:
    return isinstance(obj, FunctionType) or (isinstance(obj, type) and obj in _classes)


def _state(obj: Any) -> dict[str, Any]:
    if isinstance(obj, FunctionType):
        return {**vars(obj), **{name: getattr(obj, name) for name in _SET_ON_FUNCTIONS}}
    return dict(vars(obj))


def _is_as_it_was(now: Any, was: dict[str, Any]) -> bool:
    """Python itself adds attributes to classes that are looked at; their names are reserved."""
    if any(not _is_dunder(name) for name in now.keys() - was.keys()):
        return False
    return all(now.get(name) is value for name, value in was.items())


class Plan:
    """Which objects of a program exist already, and which are to be shared from now on.

    Attributes:
        shared: objects of earlier loads, by the numbers that they have in this one.
        groups: all groups that this load uses: they live as long as it does.
        group_of: the new group of an object.
        readers: the groups that read a name which is bound.
    """

    def __init__(self, items: list[Item]) -> None:
        self._items = items
        self._mentioned: dict[int, list[int]] = {}
        self.shared: dict[int, Any] = {}
        self.groups: list[Group] = []
        self.group_of: dict[int, Group] = {}
        self.readers: dict[int, list[Group]] = {}
        self._inert = self._parts_of_definitions()
        self._rank = self._ranks()
        for number, item in enumerate(items):
            if item.op == "class" and number not in self.shared:
                self._plan_class(number)

    def publish(self, objects: list[Any]) -> None:
        """Offer what this load made to later ones."""
        for group in self.groups:
            if not group.made:
                group.publish(objects)

    def _plan_class(self, number: int) -> None:
        reached = self._reached(number)
        if reached is None:
            return
        # which of several equal definitions it and those it reaches are
        ranks = [(place, self._rank[n]) for place, n in enumerate(reached) if n in self._rank]
        key = fingerprint(number, self._parts, _reference) + to_bytes(ranks)
        numbers = [n for n in reached if self._items[n].op not in _NOT_SUBSTITUTED]
        group = _living.get(key)
        if group is not None and group.is_intact():
            self.groups.append(group)
            for n, obj in zip(numbers, group.made, strict=True):
                self.shared.setdefault(n, obj)
            return
        group = Group(key, numbers)
        self.groups.append(group)
        for n in reached:
            if self._items[n].op in ("bind", "patch"):
                self.readers.setdefault(n, []).append(group)
            elif n not in self.shared:
                self.group_of.setdefault(n, group)

    def _ranks(self) -> dict[int, int]:
        """For every class that has a namesake: how many earlier classes have the same definition."""
        named: dict[Any, list[int]] = {}
        for number, item in enumerate(self._items):
            if item.op == "class":
                named.setdefault(item.args[2], []).append(number)
        earlier: Counter[bytes] = Counter()
        ranks: dict[int, int] = {}
        for namesakes in named.values():
            for number in namesakes if len(namesakes) > 1 else ():
                definition = fingerprint(number, self._parts, _reference)
                ranks[number] = earlier[definition]
                earlier[definition] += 1
        return {number: rank for number, rank in ranks.items() if rank}

    def _parts(self, number: int) -> list[Any]:
        item = self._items[number]
        return [item.op, item.needs, item.args, item.fills]

    def _references(self, number: int) -> list[int]:
        """What the steps of an object mention."""
        if number not in self._mentioned:
            self._mentioned[number] = references(self._parts(number))
        return self._mentioned[number]

    def _reached(self, start: int) -> list[int] | None:
        """All that a definition reaches, in canonical order; None if some of it is mutable."""
        order, seen = [start], {start}
        for number in order:  # grows while it is read
            if number not in self._inert and self._is_mutable(self._items[number]):
                return None
            for other in self._references(number):
                if other not in seen:
                    seen.add(other)
                    order.append(other)
        return order

    def _is_mutable(self, item: Item) -> bool:
        if item.op in ("new", "call", "bare"):
            return not self._makes_immutable(item.args[0])
        if item.op == "function":
            return bool(item.args[4])  # it rebinds names
        if item.op == "array":
            return bool(item.args[3])  # it can be written to
        return item.op in _MUTABLE

    def _makes_immutable(self, maker: Any) -> bool:
        if type(maker) is Reduced and maker.maker == "installed":
            module, name = maker.args
            if module == "builtins":
                return name in _IMMUTABLE_BUILTINS
            return any(f"{module}.".startswith(f"{home}.") for home in _IMMUTABLE_MAKERS)
        if type(maker) is not Reference or self._items[maker].op != "call":
            return False
        return not self._is_mutable(self._items[maker])

    def _parts_of_definitions(self) -> set[int]:
        """Containers that only describe: of classes, of installed objects, of installed closures."""
        todo = [n for number in range(len(self._items)) for n in self._described_by(number)]
        inert: set[int] = set()
        for number in todo:  # grows while it is read
            if number not in inert and self._items[number].op in _CONTAINERS:
                inert.add(number)
                todo += self._references(number)
        return inert

    def _described_by(self, number: int) -> Iterator[int]:
        item = self._items[number]
        if item.op == "class":
            yield from self._description_of(item.args[4])
            for op, *args in item.fills:
                if op == "impose":
                    yield from self._description_of(args[0])
        elif item.op in ("new", "call", "bare") and self._makes_immutable(item.args[0]):
            yield from self._references(number)
        elif item.op == "function" and isinstance(item.args[1], str):
            for cell in references(item.args[3]):
                yield from self._references(cell)

    def _description_of(self, namespace: list[Any]) -> Iterator[int]:
        for name, raw in namespace:
            if name == "_field_defaults" or _is_dunder(name):
                yield from references(raw)


def _reference(value: Any) -> Reference | None:
    return value if type(value) is Reference else None


def _is_dunder(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("__") and name.endswith("__")
