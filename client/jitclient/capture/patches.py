"""Changes that the program made to installed packages, which installed code would see.

What user code reads of a changed module travels (`namespaces.py`). But what replaces a name inside a library is used
by the library, where no capture can put it. Looked for are functions of the user's, also inside what wraps them, and
names that hold what no source of the library gives them.
"""

import functools
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from ..errors import CaptureError
from .rebound import is_rebound, own_name
from .usercode import functions_in, is_users_top

Place = tuple[str, str]

_Seen = tuple[list[Any], tuple[Place, ...], list[type]]
"""What a namespace held, what was put there, and the classes that are its own."""

_seen: dict[tuple[str, str], _Seen] = {}


def refuse_patches(packages: Iterable[str], known: set[Place]) -> None:
    """Raise if a package in use holds something that the program put there and no capture knows of.

    Args:
        packages: the packages that a capture refers to.
        known: (module, name) of patches that travel.
    """
    for package in packages:
        for module_name, module in _modules_of(package):
            for place in _patches_in(module_name, module, package):
                if place not in known:
                    raise CaptureError(f"user code was put on an installed module: {'.'.join(place)}")


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
    _, places, classes = _look(module_name, "", names, names, package)
    yield from places
    for cls in classes:
        _, places, _ = _look(module_name, cls.__name__, vars(cls), names, package)
        yield from places


def _look(module: str, owner: str, held: Mapping[str, Any], names: dict[str, Any], package: str) -> _Seen:
    seen = _seen.get((module, owner))
    if seen is None or len(seen[0]) != len(held) or not all(map(operator.is_, seen[0], held.values())):
        items = list(held.items())
        found = _in_class(module, owner, items, names, package) if owner else _in_module(module, items, names, package)
        classes = [] if owner else [v for _, v in items if isinstance(v, type) and v.__module__ == module]
        seen = _seen[module, owner] = [value for _, value in items], tuple(found), classes
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
