"""Sharing of classes: identical definitions give the same class.

JAX's registry of pytrees never drops a class, so a class that is loaded again must be the class loaded before. The
unit of sharing is a group: a class and everything that its definition reaches, so that identities within the group
hold. A group with a mutable object is not shared, because one capture could see the changes made by another. Several
equal definitions in one program are several classes: the first is shared with the first, the second with the second.

The functions of a group get namespaces of their own, which hold only the names that the group reads: a class that JAX
keeps forever must not keep the rest of a capture alive.
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
"""Lock held while a program runs, so that shared objects do not change meanwhile."""

_living: "weakref.WeakValueDictionary[bytes, Group]" = weakref.WeakValueDictionary()
_groups_to_keep: dict[bytes, "Group"] = {}  # groups with a class registered in JAX
_classes: "weakref.WeakSet[type]" = weakref.WeakSet()

_MUTABLE = frozenset(
    {"alias", "bytearray", "dict", "fresh", "list", "names", "object_array", "set"} | {"weakref", "whole"}
)
_IMMUTABLE_MAKERS = (
    *("_collections", "_operator", "dataclasses", "functools", "inspect", "operator", "re"),
    *("types", "typing", "jax", "jaxlib", "numpy._core", "chex", "equinox", "optax"),
    *("flax.core", "flax.linen", "flax.struct", "flax.typing"),
)
"""Modules and packages whose objects do not change after they are made, except for caches."""

_CONTAINERS = frozenset({"dict", "list", "set"})
_IMMUTABLE_BUILTINS = frozenset({"property", "staticmethod", "classmethod", "getattr", "object"})
_SET_ON_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__")
_NOT_SUBSTITUTED = frozenset({"bind", "code", "flags", "namespace", "of_client", "patch", "trap"})


def class_count() -> int:
    """Return the number of user classes made from captures that this process still holds."""
    return len(_classes)


def record_class(cls: type) -> None:
    """Count a class that a capture made."""
    _classes.add(cls)


def is_captured_class(cls: type) -> bool:
    """Return whether a class was made from a capture."""
    return cls in _classes


class Group:
    """Class and all objects that its definition reaches, once made."""

    def __init__(self, key: bytes, numbers: list[int]) -> None:
        self.key = key
        self.numbers = numbers
        self.made: list[Any] = []
        self._modules: dict[int, ModuleType] = {}
        self._published_state: list[tuple[type | FunctionType, dict[str, Any]]] = []

    def module(self, number: int, new: Callable[[], ModuleType]) -> ModuleType:
        """Return the group's own version of a namespace."""
        return self._modules.setdefault(number, new())

    def publish(self, objects: list[Any]) -> None:
        """Make the group available to later loads."""
        self.made = [objects[number] for number in self.numbers]
        self._modules = {}
        self._published_state = [(obj, _state(obj)) for obj in self.made if _can_be_set_on(obj)]
        _living[self.key] = self
        if any(isinstance(obj, type) and is_registered(obj) for obj, _ in self._published_state):
            _groups_to_keep[self.key] = self
        else:
            _groups_to_keep.pop(self.key, None)

    def is_intact(self) -> bool:
        """Return whether all attributes of the group's classes and functions are unchanged since it was made."""
        return all(_is_unchanged(_state(obj), was) for obj, was in self._published_state)


def _can_be_set_on(obj: Any) -> bool:
    return isinstance(obj, FunctionType) or (isinstance(obj, type) and obj in _classes)


def _state(obj: Any) -> dict[str, Any]:
    if isinstance(obj, FunctionType):
        return {**vars(obj), **{name: getattr(obj, name) for name in _SET_ON_FUNCTIONS}}
    return dict(vars(obj))


def _is_unchanged(now: Any, was: dict[str, Any]) -> bool:
    """Return whether all attributes are unchanged; new reserved names count as unchanged, because Python adds them."""
    if any(not _is_dunder(name) for name in now.keys() - was.keys()):
        return False
    return all(now.get(name) is value for name, value in was.items())


class Plan:
    """Assignment of a program's objects to shared groups.

    Attributes:
        shared: objects of earlier loads, by their numbers in this load.
        groups: all groups that this load uses; they live as long as the load.
        group_of: the new group of an object, by the object's number.
        readers: the new groups that read a name, by the number of the step that binds it.
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
        """Make the groups of this load available to later loads."""
        for group in self.groups:
            if not group.made:
                group.publish(objects)

    def _plan_class(self, number: int) -> None:
        reached = self._reached(number)
        if reached is None:
            return
        # The ranks distinguish equal definitions, of this class and of those it reaches.
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
        """Map each class with earlier equal definitions to the number of these."""
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
        """Return the numbers of the objects that the steps of an object mention."""
        if number not in self._mentioned:
            self._mentioned[number] = references(self._parts(number))
        return self._mentioned[number]

    def _reached(self, start: int) -> list[int] | None:
        """Return the numbers of all objects that a definition reaches, in canonical order; None if one is mutable."""
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
            # The function rebinds names.
            return bool(item.args[4])
        if item.op == "array":
            # The array is writable.
            return bool(item.args[3])
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
        """Return the containers that only describe a class, an installed object or an installed function's closure."""
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
