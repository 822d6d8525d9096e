"""Registries of installed packages, and what the program has registered there.

They are dictionaries that hold functions: at the top level of a module, behind a generic function of `functools`, or
in an object that has `register`; and the virtual subclasses of abstract base classes.
"""

import abc
import collections.abc
import functools
import numbers
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

from jitclient.codec.user_code.installed import is_user_module
from jitclient.codec.user_code.names import holder_of
from jitclient.codec.user_code.ownership import functions_in, is_of_user_module

_ABSTRACT = tuple(
    cls for module in (collections.abc, numbers) for cls in vars(module).values() if isinstance(cls, abc.ABCMeta)
)


def registries_in(value: Any) -> Iterator[Mapping[Any, Any]]:
    """The registries that a value of an installed module is, or has."""
    kind = type(value)
    if kind is dict:
        yield value
    elif kind is FunctionType:
        registry = vars(value).get("registry") if vars(value) else None
        if type(registry) is MappingProxyType:
            yield registry
    elif hasattr(kind, "register") and hasattr(kind, "__dict__") and not isinstance(value, type):
        yield from (held for held in getattr(value, "__dict__", {}).values() if type(held) is dict)


def of_the_program(registry: Mapping[Any, Any]) -> list[Any]:
    """The keys under which functions of the user's are registered."""
    return [key for key, held in list(registry.items()) if any(map(is_of_user_module, functions_in(held)))]


def matters(key: Any, made: Callable[[Any], bool]) -> bool:
    """Whether a capture may meet what is registered under a key: one of the user's own it would have to make."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(made(part) for part in parts if _is_the_users_own(part))


def _is_the_users_own(key: Any) -> bool:
    if isinstance(key, type):
        return is_user_module(key.__module__)
    return is_primitive(key) and not _is_held(key)


@functools.lru_cache(maxsize=256)
def _is_held(primitive: Any) -> bool:
    return holder_of(primitive) is not None


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
