"""Detection of what the program changed in jax, jaxlib, numpy or scipy.

A capture carries what user code reads from a changed module (`describe/namespaces.py`). A change inside jax also
applies to jax's own code: a capture cannot make it elsewhere, manifests do not record what that code reads, and a
process that finds a program does not run it. So the search is for user functions, bare or inside other objects, and in
jax for all that is not as installed: rules, defaults, attributes. Rules for the program's own primitives and types do
not count, nor what other installed packages put there. For other packages, the manifest records changes.
"""

import abc
import collections.abc
import functools
import gc
import numbers
import operator
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

from jitclient.capture.ambient.contents import Contents, Namespace, code_of, contents_of, is_primitive
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.ownership import functions_in, is_users_top, wraps_functions
from jitclient.errors import CaptureError

_ABSTRACT = tuple(
    cls for module in (collections.abc, numbers) for cls in vars(module).values() if isinstance(cls, abc.ABCMeta)
)


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


_MISSING: Any = object()
_FOUNDATION = sys.stdlib_module_names | {"jax", "jaxlib", "numpy"}
_MAX_PARTS = 200
_EMPTY_CELL = CellType()


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
    for package in {"jax", *SEARCHED_PACKAGES.intersection(packages)}:
        for place in find_patches(package):
            if place not in known:
                raise CaptureError(f"the program changed an installed package: {'.'.join(place)}")
    for base, cls in virtual_subclasses(made):
        raise CaptureError(
            f"{cls.__qualname__} was registered as a subclass of an installed class: {base.__qualname__}"
        )


def find_patches(package: str) -> tuple[Place, ...]:
    """Return the places that the program changed in a package's modules and in the classes defined there."""
    contents = contents_of(package)
    contents.add_loaded()
    if not contents.hold_the_same():
        stamps = contents.stamps()
        for space in contents.namespaces:
            if not space.holds_the_same():
                names = dict(space.names)
                space.places = tuple(map(space.place, _changed(contents, space, names)))
                space.held = (*names, *names.values())
        found = (place for space in contents.namespaces for place in space.places)
        contents.changed = (*found, *_changed_functions(contents))
        contents.looked(stamps)
    return contents.changed


def _changed_functions(contents: Contents) -> Iterator[Place]:
    for function, (module, path), before in zip(contents.functions, contents.places, contents.code, strict=True):
        if not all(map(operator.is_, before, code_of(function))):
            yield module, f"{path}.{'__code__' if before[0] is not function.__code__ else '__defaults__'}"


def _changed(contents: Contents, space: Namespace, names: dict[Any, Any]) -> Iterator[Any]:
    """Yield the names of a namespace that the program changed."""
    is_jax, kind, before = contents.package == "jax", space.kind, space.before()
    for name, value in names.items():
        was = before.get(name, _MISSING)
        if kind in ("module", "class"):
            is_users = _holds_users(value, space.names, contents.package)
        else:
            is_users = kind != "defaults" and contents.is_key_of_jax(name) and _users_in(value)
        if is_users or (is_jax and value is not was and _is_change(kind, name, was, value)):
            yield name
    if is_jax:
        yield from (name for name, was in before.items() if name not in names and _counts(kind, name, was))


def _is_change(kind: str, name: Any, was: Any, value: Any) -> bool:
    """Return whether another value in place of jax's, or a new one, is a change of the program's."""
    if was is _MISSING and kind in ("module", "table"):
        return False  # a module that was imported, or a rule for what is not jax's
    if was is _MISSING and _packages_in(value) == {"jaxlib"}:
        return False  # jaxlib makes some of its types when they are first needed
    if _holds_users(was, {}, "jax"):
        return False  # the program restores what was there before it was first seen
    return _counts(kind, name, value if was is _MISSING else was) and not _is_of_library(value)


def _counts(kind: str, name: Any, value: Any) -> bool:
    """Return whether jax does not change such a value itself: caches and flags it does."""
    if kind == "defaults":
        return True
    is_code = callable(value) or isinstance(value, property | staticmethod | classmethod | tuple)
    return is_code if kind == "module" else is_code or not str(name).startswith("_")


def _is_of_library(value: Any) -> bool:
    """Return whether a value is code of an installed package beside jax, and none of the user's."""
    found = _packages_in(value)
    return not (found <= _FOUNDATION or any(map(is_users_top, found)))


def _users_in(value: Any) -> bool:
    return any(map(is_users_top, _packages_in(value)))


def _packages_in(value: Any) -> set[str]:
    """Return the packages of the functions, classes and objects that a value consists of."""
    found, parts, seen = set[str](), [value], set[int]()
    for part in parts:  # the list grows
        if id(part) in seen or len(seen) > _MAX_PARTS:
            continue
        seen.add(id(part))
        kind = type(part)
        if kind is FunctionType:
            found.add(_top(part.__globals__.get("__name__")))
            parts += [cell.cell_contents for cell in part.__closure__ or () if cell != _EMPTY_CELL]
        elif isinstance(part, type):
            found.add(_top(part.__module__))
        elif isinstance(part, tuple | list):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
        elif kind is functools.partial:
            parts += [part.func, *part.args, *part.keywords.values()]
        elif kind is MethodType:
            parts += [part.__func__, part.__self__]
        elif wraps_functions(part):
            parts += functions_in(part)
        elif not isinstance(part, ModuleType) and not is_primitive(part):
            found.add(_top(kind.__module__))
            if _top(kind.__module__) == "jax":
                parts += gc.get_referents(part)  # its fields, which may be slots
    return found


def _top(module: object) -> str:
    return str(module).partition(".")[0]


def _holds_users(value: Any, names: Mapping[Any, Any], package: str) -> bool:
    """Return whether an object in an installed module or class is or wraps a user function."""
    # Most functions wrap nothing.
    if type(value) is FunctionType and not value.__dict__:
        return _is_foreign_code(value, names, package)
    return wraps_functions(value) and any(_is_foreign_code(func, names, package) for func in functions_in(value))


def _is_foreign_code(func: FunctionType, names: Mapping[Any, Any], package: str) -> bool:
    if func.__globals__ is names:
        return False
    home: Any = func.__globals__.get("__name__")
    return type(home) is str and not home.startswith(package) and is_users_top(home.partition(".")[0])
