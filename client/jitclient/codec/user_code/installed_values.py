"""What is installed, by name, as a capture refers to it."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from jitclient.codec.user_code.installed import is_user_module
from jitclient.codec.values import dtype


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
"""What gives the values of `graph.Reduced` that are no objects of the capture's own."""
