"""Where an installed object lives: the module and the name that stand for it in a capture, and the way back."""

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
"""The classes of what the interpreter makes, which say that they live in `builtins`."""


def content_of(cell: CellType) -> Any:
    """What the cell of a closure holds, or MISSING."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def lookup(module: str, dotted: str) -> Any:
    """What a loaded module holds under a dotted name, or MISSING."""
    try:
        return functools.reduce(getattr, dotted.split("."), sys.modules[module])
    except (AttributeError, KeyError):
        return MISSING


def home_of(obj: Any) -> Home | None:
    """The installed module and name under which an object says that it lives, checked."""
    module = _text(obj, "__module__")
    if module is None:
        module = _text(_attribute(obj, "__self__"), "__name__")
    name = _text(obj, "__qualname__") or _text(obj, "__name__")
    if module is None or name is None or is_user_module(module):
        return None
    for candidate in dict.fromkeys((name, name.rpartition(".")[2])):
        if lookup(module, candidate) is obj:
            return module, candidate
    return _IN_TYPES.get(id(obj))


def _text(obj: Any, attribute: str) -> str | None:
    value = _attribute(obj, attribute)
    return value if isinstance(value, str) else None


def _attribute(obj: Any, name: str) -> Any:
    try:
        return getattr(obj, name, None)
    except Exception:  # a proxy's own __getattr__ may raise anything
        return None


def constant_home(obj: Any) -> Home | None:
    """The home of a sentinel or singleton: an instance that the module of its class holds."""
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
    return {id(value): name for name, value in list(held.items()) if not name.startswith("__")}


@functools.lru_cache(maxsize=1)
def _bare_objects(n_modules: int) -> dict[int, Home]:
    """`object()` says nothing of its home: look everywhere, first in alphabetical order wins."""
    found = [(name, *bare) for name, names in _namespaces() for bare in _bare_objects_in(name, len(names))]
    return {i: (module, name) for module, name, i in sorted(found, reverse=True)}


@functools.cache
def _bare_objects_in(module: str, n_names: int) -> list[tuple[str, int]]:
    return [(name, id(value)) for name, value in list(vars(sys.modules[module]).items()) if type(value) is object]


def holder_of(obj: Any) -> Home | None:
    """Any installed module that holds an object which does not say where it lives."""
    held = ((module, name) for module, names in _namespaces() for name, value in list(names.items()) if value is obj)
    return min(held, default=None)


def _namespaces() -> Iterator[tuple[str, dict[str, Any]]]:
    """What the installed modules hold."""
    for name, module in list(sys.modules.items()):
        if hasattr(module, "__dict__") and not is_user_module(name):
            yield name, vars(module)


def installed_attribute(module: str, dotted: str) -> Any:
    """An object of an installed module, by name."""
    return functools.reduce(getattr, dotted.split("."), installed_module(module))


def installed_module(name: str) -> Any:
    """An installed module; a capture has no business with any other."""
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
"""What gives the values that a capture has by name, and no objects of its own."""
