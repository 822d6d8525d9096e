"""Detection of user code that the program put into jax, jaxlib, numpy or scipy.

A capture carries what user code reads from a changed module (`describe/namespaces.py`). A replacement inside jax is
also used by jax's own code: a capture cannot install it there, and manifests do not record what that code reads. The
search is for user functions, bare or inside wrappers. For other packages, the manifest records replacements.
"""

import abc
import collections.abc
import dataclasses
import functools
import numbers
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any

from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.ownership import functions_in, is_users_top, wraps_functions
from jitclient.errors import CaptureError

_ABSTRACT = tuple(
    cls for module in (collections.abc, numbers) for cls in vars(module).values() if isinstance(cls, abc.ABCMeta)
)


def is_primitive(obj: Any) -> bool:
    """Return whether an object is a JAX primitive, made by JAX or by any other code."""
    return any(kind.__name__ == "Primitive" and kind.__module__.startswith("jax.") for kind in type(obj).__mro__)


def virtual_subclasses(made: Callable[[Any], bool]) -> Iterator[tuple[type, type]]:
    """Iterate over the captured classes registered with Python's own abstract base classes: (base, class)."""
    for base in _ABSTRACT:
        yield from ((base, cls) for cls in registered_with(base) if is_user_module(cls.__module__) and made(cls))


def registered_with(base: type) -> list[type]:
    """Return the virtual subclasses of an abstract base class, in any order."""
    from _abc import _get_dump  # type: ignore[import-not-found]

    return [cls for reference in _get_dump(base)[0] if (cls := reference()) is not None]


Place = tuple[str, str]

SEARCHED_PACKAGES = frozenset({"jax", "jaxlib", "numpy", "scipy"})


@dataclasses.dataclass
class _Seen:
    """Contents of a namespace and of its classes, and the user code found there.

    A forked process inherits the records.
    """

    held: list[Any]
    classes: list[tuple[type, list[Any]]]
    places: tuple[Place, ...]

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Return whether the namespace and its classes still hold exactly these objects."""
        return _is_that(self.held, names) and all(_is_that(held, vars(cls)) for cls, held in self.classes)


def _is_that(held: list[Any], names: Mapping[str, Any]) -> bool:
    return len(held) == len(names) and all(map(operator.is_, held, names.values()))


_seen: dict[str, _Seen] = {}


def raise_if_patched(packages: Collection[str], known: set[Place], made: Callable[[Any], bool]) -> None:
    """Raise if user code was put on jax or its foundations, or a captured class on Python's own.

    Args:
        packages: packages that the capture refers to.
        known: places (module, name) whose value the capture carries; these are allowed.
        made: returns whether the capture makes an object.

    Raises:
        CaptureError: another place holds the user's code, or a class that the capture makes was registered with one of
            Python's own abstract base classes.
    """
    for package in SEARCHED_PACKAGES.intersection(packages):
        for place in _find_patches_once(package, len(sys.modules)):
            if place not in known:
                raise CaptureError(f"user code replaced an attribute of an installed module: {'.'.join(place)}")
    for base, cls in virtual_subclasses(made):
        raise CaptureError(
            f"{cls.__qualname__} was registered as a subclass of an installed class: {base.__qualname__}"
        )


@functools.lru_cache(maxsize=64)
def _find_patches_once(package: str, n_modules: int) -> tuple[Place, ...]:
    """Search a package again only when modules were imported: a search takes milliseconds."""
    return find_patches(package)


def find_patches(package: str) -> tuple[Place, ...]:
    """Return the places where the program's code is in a package's modules and the classes defined there."""
    prefix = f"{package}."
    modules = [(name, module) for name, module in dict(sys.modules).items() if f"{name}.".startswith(prefix)]
    found = [_look(name, vars(module), package) for name, module in modules if isinstance(module, ModuleType)]
    return tuple(place for seen in found for place in seen.places)


def _look(module: str, names: dict[str, Any], package: str) -> _Seen:
    """Search a module, unless its contents are those of the last search."""
    seen = _seen.get(module)
    if seen is None or not seen.holds(names):
        items = dict(names).items()
        classes = [(value, list(vars(value).values())) for _, value in items if _is_made_in(module, value)]
        places = tuple(_places_in(module, items, names, package))
        seen = _seen[module] = _Seen([value for _, value in items], classes, places)
    return seen


def _places_in(module: str, items: Iterable[tuple[str, Any]], names: dict[str, Any], package: str) -> Iterator[Place]:
    for name, value in items:
        if _holds_users(value, names, package):
            yield module, name
        elif _is_made_in(module, value):
            for attribute, held in vars(value).copy().items():
                if _holds_users(held, names, package):
                    yield module, f"{name}.{attribute}"


def _is_made_in(module: str, value: Any) -> bool:
    return isinstance(value, type) and value.__module__ == module


def _holds_users(value: Any, names: dict[str, Any], package: str) -> bool:
    """Return whether an object in an installed module or class is or wraps a user function."""
    # Most functions wrap nothing.
    if type(value) is FunctionType and not value.__dict__:
        return _is_foreign_code(value, names, package)
    return wraps_functions(value) and any(_is_foreign_code(func, names, package) for func in functions_in(value))


def _is_foreign_code(func: FunctionType, names: dict[str, Any], package: str) -> bool:
    if func.__globals__ is names:
        return False
    home: Any = func.__globals__.get("__name__")
    return type(home) is str and not home.startswith(package) and is_users_top(home.partition(".")[0])
