"""The attributes of an object: its `__dict__` and its slots, with nothing of the user's run."""

import functools
import sys
from types import FunctionType, MemberDescriptorType
from typing import Any

from jitclient.codec.pickler import to_bytes
from jitclient.codec.plain import is_plain
from jitclient.codec.tracers import is_tracer
from jitclient.codec.user_code.names import MISSING
from jitclient.codec.user_code.ownership import is_made_in_c, is_user_function

_PURE = (
    "abs all any bool bytes chr complex dict divmod enumerate filter float frozenset hex int isinstance len list map "
    "max min ord pow range repr reversed round slice sorted str sum tuple zip"
)
_PURE_BUILTINS = {name: getattr(sys.modules["builtins"], name) for name in _PURE.split()}


def dict_of(obj: Any) -> dict[str, Any]:
    """The `__dict__` of an object, whatever its class says; an empty one if there is none."""
    try:
        held = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return held if type(held) is dict else {}


def attributes_of(obj: Any) -> dict[str, Any]:
    """The `__dict__` of an object, as far as it is part of it; without slots."""
    return without_caches(obj, dict_of(obj))


def slots_of(obj: Any) -> dict[str, Any]:
    """What the slots of an object hold."""
    found: dict[str, Any] = {}
    for cls in type(obj).__mro__:
        for name, slot in vars(cls).items() if not is_made_in_c(cls) else ():
            if isinstance(slot, MemberDescriptorType):
                try:
                    found.setdefault(name, slot.__get__(obj))
                except AttributeError:
                    continue
    return dict(sorted(found.items()))


def without_caches(obj: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The state without what cached properties hold that a copy would work out alike.

    Whether a property was looked at before is no part of an object, unless a look would give something else now: it
    may count, draw random numbers, or be older than what it was made from. To find out by running it would be a second
    run of code that was meant to run once, so only where all that it can see are plain values is it tried.
    """
    return {name: value for name, value in state.items() if not _is_mere_cache(obj, name, value, state)}


def _is_mere_cache(obj: Any, name: str, value: Any, state: dict[str, Any]) -> bool:
    prop = _class_attribute(type(obj), name)
    if not isinstance(prop, functools.cached_property):
        return False
    if not is_user_function(prop.func) or is_tracer(value):  # that is of no use outside of its trace
        return True
    if not is_plain(value):
        return False
    again = _from_plain_values(prop.func, type(obj), {k: v for k, v in state.items() if k != name})
    return again is not MISSING and is_plain(again) and to_bytes(again) == to_bytes(value)


def _class_attribute(cls: type, name: Any) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _from_plain_values(func: Any, cls: type, state: dict[str, Any]) -> Any:
    """What a function of an object gives that sees plain values only, or MISSING if it asks for anything else."""
    if type(func) is not FunctionType or func.__closure__ or func.__defaults__:
        return MISSING
    shared = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    seen = {name: value for name, value in (shared | state).items() if is_plain(value) and not _is_dunder(name)}
    names = {name: value for name, value in func.__globals__.items() if is_plain(value) and not _is_dunder(name)}
    alone = FunctionType(func.__code__, {**names, "__builtins__": _PURE_BUILTINS})
    try:
        return alone(_Seen(seen))
    except Exception:  # it asked for more, or is of no use on these values
        return MISSING


def _is_dunder(name: Any) -> bool:
    return not isinstance(name, str) or name.startswith("__")


class _Seen:
    """Stands for an object, of which only plain values are seen."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        object.__setattr__(self, "_values", values)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, "_values")[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)
