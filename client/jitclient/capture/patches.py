"""Changes that the program made to installed packages, which installed code would see.

What user code reads of a changed module travels (`namespaces.py`). But what replaces a name inside a library is used
by the library, where no capture can put it. Looked for are functions of the user's, also inside what wraps them, and
names that hold what no source of the library gives them.
"""

import dataclasses
import functools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from ..errors import CaptureError
from .rebound import is_rebound, own_name
from .registries import matters, of_the_program, registries_in, virtual_subclasses
from .usercode import functions_in, is_users_top

Place = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class _Seen:
    """What a namespace held, and what was found there."""

    held: list[Any]
    places: tuple[Place, ...]
    classes: tuple[type, ...] = ()
    registries: tuple[tuple[str, Mapping[Any, Any]], ...] = ()


_seen: dict[tuple[str, str], _Seen] = {}
_registered: dict[int, tuple[Mapping[Any, Any], list[Any], list[Any]]] = {}
"""Registries, each with what it held, and under which keys something of the program's."""


def refuse_patches(packages: Iterable[str], known: set[Place], made: Callable[[Any], bool]) -> None:
    """Raise if a package in use holds something that the program put there and no capture knows of.

    Args:
        packages: the packages that a capture refers to.
        known: (module, name) of patches that travel.
        made: whether the capture makes an object anew.
    """
    for package in packages:
        for module_name, module in _modules_of(package):
            for place in _patches_in(module_name, module, package):
                if place not in known:
                    raise CaptureError(f"user code was put on an installed module: {'.'.join(place)}")
    for base, cls in virtual_subclasses(made):
        raise CaptureError(f"{cls.__qualname__} was registered with an installed class: {base.__qualname__}")
    for name, registry in [each for package in packages for each in _registries_of(package)]:
        for key in _keys_of_the_program(registry):
            if matters(key, made):
                raise CaptureError(f"user code was registered with an installed module: {name}")


def _registries_of(package: str) -> Iterator[tuple[str, Mapping[Any, Any]]]:
    for module_name, _ in _modules_of(package):
        yield from _seen[module_name, ""].registries


def _keys_of_the_program(registry: Mapping[Any, Any]) -> list[Any]:
    _, held, keys = _registered.get(id(registry), (registry, [], []))
    if len(held) != len(registry) or not all(map(operator.is_, held, registry.values())):
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


@functools.cache
def _defined_in(package: str) -> frozenset[str]:
    """The names that the functions of a package give themselves, when it is first looked through."""
    held = [value for _, module in _modules_of(package) for value in list(vars(module).values())]
    return frozenset(name for name in map(own_name, held) if name is not None)


def _patches_in(module_name: str, module: ModuleType, package: str) -> Iterator[Place]:
    """A namespace that holds what it held is not looked through again: there are thousands."""
    names = vars(module)
    seen = _look(module_name, "", names, names, package)
    yield from seen.places
    for cls in seen.classes:
        yield from _look(module_name, cls.__name__, vars(cls), names, package).places


def _look(module: str, owner: str, held: Mapping[str, Any], names: dict[str, Any], package: str) -> _Seen:
    seen = _seen.get((module, owner))
    if seen is None or len(seen.held) != len(held) or not all(map(operator.is_, seen.held, held.values())):
        items = list(held.items())
        values = [value for _, value in items]
        if owner:
            seen = _Seen(values, tuple(_in_class(module, owner, items, names, package)))
        else:
            classes = tuple(value for value in values if isinstance(value, type) and value.__module__ == module)
            registries = tuple((f"{module}.{name}", each) for name, value in items for each in registries_in(value))
            seen = _Seen(values, tuple(_in_module(module, items, names, package)), classes, registries)
        _seen[module, owner] = seen
    return seen


def _in_module(module: str, items: list[tuple[str, Any]], names: dict[str, Any], package: str) -> Iterator[Place]:
    for name, value in items:
        if _holds_users(value, names, package) or is_rebound(module, name, value, _defined_in(package)):
            yield module, name


def _in_class(
    module: str, owner: str, items: list[tuple[str, Any]], names: dict[str, Any], package: str
) -> Iterator[Place]:
    for name, value in items:
        if _holds_users(value, names, package):
            yield module, f"{owner}.{name}"


def _holds_users(value: Any, names: dict[str, Any], package: str) -> bool:
    """Whether something in an installed module, or in a class of it, is or wraps a function of the user's."""
    return any(_is_put_there(func, names, package) for func in functions_in(value))


def _is_put_there(func: FunctionType, names: dict[str, Any], package: str) -> bool:
    if func.__globals__ is names:
        return False
    home: Any = func.__globals__.get("__name__")
    return type(home) is str and not home.startswith(package) and is_users_top(home.partition(".")[0])
