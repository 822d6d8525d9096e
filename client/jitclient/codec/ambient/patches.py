"""Changes that the program made to installed packages, which installed code would see.

What user code reads of a changed module travels (`reducers/namespaces.py`). But what replaces a name inside a library
is used by the library, where no capture can put it. Looked for are functions of the user's, also inside what wraps
them.
"""

import dataclasses
import functools
import operator
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from jitclient.codec.ambient.registries import matters, of_the_program, registries_in, virtual_subclasses
from jitclient.codec.user_code.ownership import functions_in, is_users_top, wraps_functions
from jitclient.errors import CaptureError

Place = tuple[str, str]


@dataclasses.dataclass
class _Seen:
    """What a namespace, the classes that it makes and what can be rewritten in them held, and what was found there, in
    this process or before it was forked.
    """

    held: list[Any]
    classes: list[tuple[type, list[Any]]]
    rewritable: list[tuple[Any, Any]]
    process: int
    places: tuple[Place, ...]
    registries: tuple[tuple[str, Mapping[Any, Any]], ...]

    def holds(self, names: Mapping[str, Any], classes_too: bool) -> bool:
        """Whether the namespace still holds just that, and if asked for, its classes."""
        return _is_that(self.held, names) and (not classes_too or self._classes_hold())

    def _classes_hold(self) -> bool:
        unchanged = all(_is_that(held, vars(cls)) for cls, held in self.classes)
        return unchanged and all(wrapper.func is func for wrapper, func in self.rewritable)


def _is_that(held: list[Any], names: Mapping[str, Any]) -> bool:
    return len(held) == len(names) and all(map(operator.is_, held, names.values()))


_LARGE = frozenset({"jax", "jaxlib", "numpy", "scipy"})
_REWRITABLE = (functools.cached_property, functools.partialmethod)
_seen: dict[str, _Seen] = {}
_registered: dict[int, tuple[Mapping[Any, Any], list[Any], list[Any]]] = {}
"""Registries, each with what it held, and under which keys something of the program's."""


def refuse_patches(packages: Collection[str], known: set[Place], made: Callable[[Any], bool]) -> None:
    """Raise if one of the `packages` that a capture refers to holds something that the program put there, unless it
    travels as it is `known`, or belongs to what the capture has not `made`.
    """
    for package in packages:
        for place in _patches_in(package):
            if place not in known:
                raise CaptureError(f"user code was put on an installed module: {'.'.join(place)}")
    for base, cls in virtual_subclasses(made):
        raise CaptureError(f"{cls.__qualname__} was registered with an installed class: {base.__qualname__}")
    for module in [module for package in packages if package not in _LARGE for module, _ in _modules_of(package)]:
        for name, registry in _seen[module].registries:
            if any(matters(key, made) for key in _keys_of_the_program(registry)):
                raise CaptureError(f"user code was registered with an installed module: {name}")


def _keys_of_the_program(registry: Mapping[Any, Any]) -> list[Any]:
    _, held, keys = _registered.get(id(registry), (registry, [], []))
    if not _is_that(held, registry):
        held, keys = list(registry.values()), of_the_program(registry)
        _registered[id(registry)] = registry, held, keys
    return keys


def _modules_of(package: str) -> Iterator[tuple[str, ModuleType]]:
    for name in _names_of(package, len(sys.modules)):
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            yield name, module


@functools.lru_cache(maxsize=64)
def _names_of(package: str, n_modules: int) -> tuple[str, ...]:
    prefix = f"{package}."
    return tuple(name for name in list(sys.modules) if name == package or name.startswith(prefix))


def _patches_in(package: str) -> tuple[Place, ...]:
    if package in _LARGE:
        return _looked_through_once(package, len(sys.modules))
    return look_through(package)


@functools.lru_cache(maxsize=64)
def _looked_through_once(package: str, n_modules: int) -> tuple[Place, ...]:
    """Looked through again whenever modules were imported: it takes milliseconds."""
    return look_through(package)


def look_through(package: str) -> tuple[Place, ...]:
    """Where something of the program's is in the modules of a package, and in the classes that they make."""
    return tuple(place for name, module in _modules_of(package) for place in _look(name, vars(module), package).places)


def _look(module: str, names: dict[str, Any], package: str) -> _Seen:
    """A module that holds what it held is not looked through again. Its classes are compared only in a forked process,
    and where that is seldom: it takes longer.
    """
    seen, process = _seen.get(module), os.getpid()
    if seen is not None and seen.holds(names, package in _LARGE or seen.process != process):
        seen.process = process
        return seen
    items = list(names.items())
    classes = [(value, list(vars(value).values())) for _, value in items if _is_made_in(module, value)]
    found = () if package in _LARGE else ((name, each) for name, value in items for each in registries_in(value))
    seen = _seen[module] = _Seen(
        held=[value for _, value in items],
        classes=classes,
        rewritable=[(each, each.func) for _, held in classes for each in held if type(each) in _REWRITABLE],
        process=process,
        places=tuple(_places_in(module, items, names, package)),
        registries=tuple((f"{module}.{name}", each) for name, each in found),
    )
    return seen


def _places_in(module: str, items: list[tuple[str, Any]], names: dict[str, Any], package: str) -> Iterator[Place]:
    for name, value in items:
        if _holds_users(value, names, package):
            yield module, name
        elif _is_made_in(module, value):
            for attribute, held in list(vars(value).items()):
                if _holds_users(held, names, package):
                    yield module, f"{name}.{attribute}"


def _is_made_in(module: str, value: Any) -> bool:
    return isinstance(value, type) and value.__module__ == module


def _holds_users(value: Any, names: dict[str, Any], package: str) -> bool:
    """Whether something in an installed module, or in a class of it, is or wraps a function of the user's."""
    if type(value) is FunctionType and not value.__dict__:  # as most are: it wraps nothing
        return _is_put_there(value, names, package)
    return wraps_functions(value) and any(_is_put_there(func, names, package) for func in functions_in(value))


def _is_put_there(func: FunctionType, names: dict[str, Any], package: str) -> bool:
    if func.__globals__ is names:
        return False
    home: Any = func.__globals__.get("__name__")
    return type(home) is str and not home.startswith(package) and is_users_top(home.partition(".")[0])
