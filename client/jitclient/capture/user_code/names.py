"""Names of installed objects: look-up of the module and name that identify an object, and of the object."""

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from types import CellType
from typing import Any

from jitclient.capture.codec.values import dtype
from jitclient.capture.user_code.installed import is_user_module

MISSING: Any = object()
Home = tuple[str, str]

_IN_TYPES: dict[int, Home] = {id(v): ("types", name) for name, v in reversed(vars(types).items()) if type(v) is type}
"""Classes of interpreter objects, whose `__module__` is `builtins` although `types` holds them."""


def content_of(cell: CellType) -> Any:
    """Return the content of a closure's cell, or MISSING if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def lookup(module: str, dotted: str) -> Any:
    """Return the object at a dotted name in a loaded module, or MISSING."""
    try:
        return functools.reduce(getattr, dotted.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return MISSING


def home_of(obj: Any) -> Home | None:
    """Return the installed module and name that an object claims, if they lead back to it; otherwise None."""
    module = _text(obj, "__module__")
    if module is None:
        module = _text(_attribute(obj, "__self__"), "__name__")
    name = _text(obj, "__qualname__") or _text(obj, "__name__")
    if module is None or name is None or is_user_module(module):
        return None
    for candidate in dict.fromkeys((name, name.rpartition(".")[2])):
        if lookup(module, candidate) is obj:
            return module, candidate
    # A package may give its classes the name of a module from which it will export them.
    return _IN_TYPES.get(id(obj)) or (holder_of(obj, module.partition(".")[0]) if isinstance(obj, type) else None)


def _text(obj: Any, attribute: str) -> str | None:
    value = _attribute(obj, attribute)
    return value if isinstance(value, str) else None


def _attribute(obj: Any, name: str) -> Any:
    try:
        return getattr(obj, name, None)
    except Exception:
        # The `__getattr__` of a proxy may raise any exception.
        return None


def constant_home(obj: Any) -> Home | None:
    """Return the home of a sentinel or singleton: an instance that the module of its class holds."""
    if type(obj) is object:
        home = _bare_objects(len(sys.modules)).get(id(obj))
    else:
        module = type(obj).__module__
        is_installed = module in sys.modules and not is_user_module(module)
        name = _constants(module).get(id(obj)) if is_installed else None
        home = (module, name) if name is not None else None
    return home if home is not None and lookup(*home) is obj else None


@functools.cache
def _constants(module: str) -> dict[int, str]:
    held = vars(sys.modules[module])
    return {id(value): name for name, value in dict(held).items() if not name.startswith("__")}


@functools.lru_cache(maxsize=1)
def _bare_objects(n_modules: int) -> dict[int, Home]:
    """Map the ids of bare `object()` instances in installed modules to their homes.

    Such an instance does not name its home, so every module is searched; the alphabetically first home is chosen.
    """
    found = [(name, *bare) for name, names in _namespaces() for bare in _bare_objects_in(name, len(names))]
    return {i: (module, name) for module, name, i in sorted(found, reverse=True)}


@functools.cache
def _bare_objects_in(module: str, n_names: int) -> list[tuple[str, int]]:
    return [(name, id(value)) for name, value in dict(vars(sys.modules[module])).items() if type(value) is object]


def holder_of(obj: Any, package: str = "") -> Home | None:
    """Return the first installed module, of a package if it is given, and name that hold an object, or None."""
    spaces = _namespaces(package)
    return min(
        ((module, name) for module, names in spaces for name, held in dict(names).items() if held is obj), default=None
    )


def _namespaces(package: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over the names and namespaces of the installed modules, or of those of a package."""
    for name, module in dict(sys.modules).items():
        is_wanted = not package or name.partition(".")[0] == package
        if is_wanted and hasattr(module, "__dict__") and not is_user_module(name):
            yield name, vars(module)


def installed_attribute(module: str, dotted: str) -> Any:
    """Return an object of an installed module by its dotted name."""
    return functools.reduce(getattr, dotted.split("."), installed_module(module))


def installed_module(name: str) -> Any:
    """Import and return an installed module; raise ImportError for a user module."""
    if is_user_module(name):
        raise ImportError(f"{name} is not installed here")
    return importlib.import_module(name)


VALUES: dict[str, Callable[..., Any]] = {
    "attribute": getattr,
    "dtype": dtype,
    "installed": installed_attribute,
    "module": installed_module,
    "slice": slice,
}
"""Maker -> function for values that a capture holds by name and that are not objects of its own."""
