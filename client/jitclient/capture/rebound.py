"""Names of installed modules that hold a function which no source of the library gives them.

Libraries have thousands of aliases, and each of them is spelled in some source: by an assignment, or by an import
under another name. Where no loaded module spells it, the program has put the object there. Where a source cannot be
read, or makes names in ways that it does not spell, nothing is said.
"""

import functools
import re
import sys
from collections.abc import Container
from pathlib import Path
from types import FunctionType
from typing import Any

from .inline import is_plain

TRANSFORMED = frozenset({"PjitFunction", "custom_jvp", "custom_vjp", "_lru_cache_wrapper"})
"""Types of functions that something was made of: they keep it where `functools.wraps` does."""

_UNSPELLED = ("globals(", "locals(", "vars(", "setattr(", "exec(", "eval(", ".__dict__", "sys.modules[")


def is_rebound(module: str, name: str, value: Any, defined: Container[str]) -> bool:
    """Whether a name of an installed module holds what says that it has another name, and no source says why.

    `defined` are the names of the functions that the library has: an alias seldom hides one of them.
    """
    own = own_name(value)
    if own is None or name in (own, getattr(getattr(value, "__code__", None), "co_name", None)):
        return False
    if not (name in defined or _defines(module, name)):
        return False
    return not _spelled(module, name, own) and not any(
        _spelled(other, name, own)
        for other, each in list(sys.modules.items())
        if getattr(each, "__dict__", {}).get(name) is value and other != module
    )


def own_name(value: Any) -> str | None:
    """The name that a function at the top level of a module has there."""
    kind = type(value)
    if kind is not FunctionType and kind.__name__ not in TRANSFORMED:
        return None
    own = getattr(value, "__qualname__", None)
    return own if isinstance(own, str) and "." not in own else None


def _defines(module: str, name: str) -> bool:
    text = _source(module)
    return text is not None and f"\ndef {name}(" in text


def _spelled(module: str, name: str, own: str) -> bool:
    text = _source(module)
    if text is None or name not in text:
        return text is None
    name, own = re.escape(name), re.escape(own)
    ways = (rf"\b{own}\s+as\s+{name}\b", rf"^[^#(]*\b{name}\b[^#=(]*=[^=]", rf"\bfor\b.*\b{name}\b")
    spelling = re.compile("|".join(ways))
    lines = (line for line in text.splitlines() if name in line)
    return any(map(spelling.search, lines)) or any(word in text for word in _UNSPELLED)


def is_put_on(cls: type, name: str, value: Any) -> bool:
    """Whether an attribute of an installed class is one that no source speaks of: a constant, or a partial method."""
    is_partial = isinstance(value, functools.partialmethod)
    if not is_partial and (name.startswith("_") or not is_plain(value)):
        return False
    text = _source(cls.__module__)
    if text is None or not re.search(rf"^class {re.escape(cls.__qualname__)}\b", text, re.MULTILINE):
        return False
    if is_partial:
        return "partialmethod" not in text
    modules = {kind.__module__ for one in (cls, type(cls)) for kind in one.__mro__} - {"builtins", "abc"}
    return not any(name in (_source(module) or name) for module in modules)


@functools.cache
def _source(module: str) -> str | None:
    path = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(path, str) or not path.endswith(".py"):
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return None
