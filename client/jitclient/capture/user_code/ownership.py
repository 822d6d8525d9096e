"""Tests for the user's own objects: classes and functions that must be captured by value."""

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from jitclient.capture.ambient.contents import TRANSFORMED
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import home_of
from jitclient.errors import CaptureError

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_EXTENSION_METACLASSES = ("nb_type", "pybind11_type")


def is_made_in_c(cls: type) -> bool:
    """Return whether a class comes from an extension module, and so has no definition to capture."""
    names = (type(cls).__name__, cls.__name__)
    return not cls.__flags__ & _HEAP_TYPE or any(n.startswith(_EXTENSION_METACLASSES) for n in names)


def is_user_class(cls: type) -> bool:
    """Return whether a class is captured by its definition."""
    if is_made_in_c(cls):
        return False
    return is_user_module(cls.__dict__.get("__module__")) or home_of(cls) is None


def raise_if_holds_user_code(cls: type) -> None:
    """Check that an installed class holds no user functions, since the daemon's class has none of them.

    Raises:
        CaptureError: the program put user code on the class.
    """
    if is_made_in_c(cls):
        return
    for name, value in vars(cls).items():
        if any(map(is_of_user_module, functions_in(value))):
            where = f"{cls.__module__}.{cls.__qualname__}.{name}"
            raise CaptureError(f"user code replaced an attribute of an installed class: {where}")


_WRAPPERS: dict[type, tuple[str, ...]] = {
    FunctionType: ("__wrapped__",),
    MethodType: ("__func__",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.partial: ("func",),
    functools.partialmethod: ("func",),
    functools.cached_property: ("func",),
    property: ("fget", "fset", "fdel"),
}
"""Type of wrapper -> attributes that hold the wrapped functions."""

_HAVE_FUNC = (functools.partial, functools.partialmethod, functools.cached_property, functools.singledispatchmethod)
_MAX_WRAPPED = 100


def wraps_functions(obj: Any) -> bool:
    """Return whether an object is a function, or of a type that wraps functions."""
    kind = type(obj)
    return kind in _WRAPPERS or kind.__name__ in TRANSFORMED


def functions_in(obj: Any) -> Iterator[FunctionType]:
    """Iterate over the functions that an object is or wraps, the outermost first."""
    seen = [obj]
    for each in seen:  # the list grows; wrappers may be made to wrap themselves
        kind = type(each)
        if kind is FunctionType:
            yield each
        attributes = _WRAPPERS.get(kind, ("__wrapped__",) if kind.__name__ in TRANSFORMED else ())
        inner = [getattr(each, attribute, None) for attribute in attributes]
        seen += [found for found in inner if not any(found is known for known in seen)]


def is_user_function(obj: Any) -> bool:
    """Return whether an object is a function of the user's, also inside bound methods and partials."""
    for _ in range(_MAX_WRAPPED):  # a partial may be made to wrap itself
        if isinstance(obj, FunctionType):
            return is_user_module(obj.__globals__.get("__name__"))
        if isinstance(obj, MethodType):
            obj = obj.__func__
        elif isinstance(obj, _HAVE_FUNC):
            obj = obj.func
        else:
            break
    return False


def is_users_top(top: str) -> bool:
    """Return whether a top-level name is a loaded user module.

    Callers pass top-level names only, because a test of every submodule would search the disk thousands of times.
    """
    return top in sys.modules and is_user_module(top)


def is_of_user_module(func: FunctionType) -> bool:
    """Return whether a function belongs to a loaded user module.

    Libraries generate functions in namespaces that belong to no module.
    """
    home: Any = func.__globals__.get("__name__")
    return type(home) is str and home in sys.modules and is_user_module(home)


def has_private_globals(func: FunctionType) -> bool:
    """Return whether a function's globals are captured; globals of an installed module are the daemon's own."""
    home = func.__globals__.get("__name__")
    live = sys.modules.get(home) if isinstance(home, str) else None
    return live is None or is_user_module(home) or vars(live) is not func.__globals__


def is_user_made(obj: Any) -> bool:
    """Return whether an object is a user function or a user class."""
    if isinstance(obj, type):
        return is_user_class(obj)
    return callable(obj) and is_user_function(obj)
