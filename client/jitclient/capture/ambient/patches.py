"""Changes that the program made to jax and what jax stands on, which their own code would see.

What user code reads of a changed module travels (`describe/namespaces.py`). But what replaces a name inside of jax is
used by jax, where no capture can put it, and of whose code no manifest knows what it reads. Looked for are functions of
the user's, also inside what wraps them. Of other packages, a manifest has what was replaced.
"""

import abc
import collections.abc
import dataclasses
import functools
import numbers
import operator
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.ownership import functions_in, is_users_top, wraps_functions
from jitclient.errors import CaptureError

_ABSTRACT = tuple(
    cls for module in (collections.abc, numbers) for cls in vars(module).values() if isinstance(cls, abc.ABCMeta)
)


def is_primitive(obj: Any) -> bool:
    """Whether an object is a primitive of JAX's, whoever made it."""
    return any(kind.__name__ == "Primitive" and kind.__module__.startswith("jax.") for kind in type(obj).__mro__)


def virtual_subclasses(made: Callable[[Any], bool]) -> Iterator[tuple[type, type]]:
    """Abstract base classes of Python's own, each with a class of the capture's that was registered with it."""
    for base in _ABSTRACT:
        yield from ((base, cls) for cls in registered_with(base) if is_user_module(cls.__module__) and made(cls))


def registered_with(base: type) -> list[type]:
    """The virtual subclasses of an abstract base class, in any order."""
    from _abc import _get_dump  # type: ignore[import-not-found]

    return [cls for reference in _get_dump(base)[0] if (cls := reference()) is not None]


Place = tuple[str, str]

LOOKED_THROUGH = frozenset({"jax", "jaxlib", "numpy", "scipy"})


@dataclasses.dataclass
class _Seen:
    """What a namespace and the classes that it makes held, and what was found there, in this process or before it was
    forked.
    """

    held: list[Any]
    classes: list[tuple[type, list[Any]]]
    places: tuple[Place, ...]

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Whether the namespace and its classes still hold just that."""
        return _is_that(self.held, names) and all(_is_that(held, vars(cls)) for cls, held in self.classes)


def _is_that(held: list[Any], names: Mapping[str, Any]) -> bool:
    return len(held) == len(names) and all(map(operator.is_, held, names.values()))


_seen: dict[str, _Seen] = {}


def refuse_patches(packages: Collection[str], known: set[Place], made: Callable[[Any], bool]) -> None:
    """Raise if jax, or what it stands on, holds something that the program put there, unless it is `known` and travels,
    or if a class that the capture has `made` was registered with one of Python's own.
    """
    for package in LOOKED_THROUGH.intersection(packages):
        for place in _looked_through_once(package, len(sys.modules)):
            if place not in known:
                raise CaptureError(f"user code was put on an installed module: {'.'.join(place)}")
    for base, cls in virtual_subclasses(made):
        raise CaptureError(f"{cls.__qualname__} was registered with an installed class: {base.__qualname__}")


@functools.lru_cache(maxsize=64)
def _looked_through_once(package: str, n_modules: int) -> tuple[Place, ...]:
    """Looked through again whenever modules were imported: it takes milliseconds."""
    return look_through(package)


def look_through(package: str) -> tuple[Place, ...]:
    """Where something of the program's is in the modules of a package, and in the classes that they make."""
    prefix = f"{package}."
    modules = [(name, module) for name, module in list(sys.modules.items()) if f"{name}.".startswith(prefix)]
    found = [_look(name, vars(module), package) for name, module in modules if isinstance(module, ModuleType)]
    return tuple(place for seen in found for place in seen.places)


def _look(module: str, names: dict[str, Any], package: str) -> _Seen:
    """A module that holds what it held is not looked through again."""
    seen = _seen.get(module)
    if seen is None or not seen.holds(names):
        items = list(names.items())
        classes = [(value, list(vars(value).values())) for _, value in items if _is_made_in(module, value)]
        places = tuple(_places_in(module, items, names, package))
        seen = _seen[module] = _Seen([value for _, value in items], classes, places)
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
