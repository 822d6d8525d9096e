"""Whether an object comes back from its pickle as it was: what `__reduce__` and `__getstate__` leave out may be needed.

The daemon has nothing but what the capture says. Where a class says itself how its objects are reduced, the object is
made again here, once, and compared with what it was.
"""

import copyreg
import sys
import threading
import types
import warnings
from typing import Any, NamedTuple

from jitclient.codec.ambient.inputs import noted_reads
from jitclient.codec.ambient.world import watch
from jitclient.codec.graph.canonical import canonical
from jitclient.codec.graph.nodes import type_name
from jitclient.codec.graph.walker import Walker
from jitclient.codec.pickler import to_bytes
from jitclient.codec.plain import is_plain
from jitclient.codec.reducers.attributes import NEW, attributes_of, base_of, dict_of, slots_of
from jitclient.codec.reducers.unharmed import Unharmed
from jitclient.codec.user_code.installed import OURS
from jitclient.codec.user_code.names import MISSING
from jitclient.codec.user_code.ownership import is_user_class, is_user_function
from jitclient.errors import CaptureError

_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__")
_TRUSTED = frozenset({*sys.stdlib_module_names, *OURS, "flax", "jax", "jaxlib", "ml_dtypes", "numpy"})
"""Packages whose objects come back as they were, though what they keep for speed comes and goes."""


class Parts(NamedTuple):
    """What `__reduce_ex__` gives, with nothing left out."""

    make: Any
    args: tuple[Any, ...]
    state: Any = None
    items: list[Any] | None = None
    pairs: list[tuple[Any, Any]] | None = None
    setter: Any = None


def remaking(walker: Walker, obj: Any) -> tuple[Parts | str | None, frozenset[str] | None]:
    """How an object says that it is made again; and what that would lose, if it is not the same then."""
    if not _may_forget(obj):
        return _reduced(obj), None
    watch()
    with noted_reads() as reads:
        try:
            parts = _reduced(obj)
        except Exception:  # it is the user's code: what it may raise is anything
            return None, _names_of(obj)
    if isinstance(parts, str):
        return parts, None
    lost = _forgotten(walker, obj, parts)
    return parts, _names_of(obj) if reads and lost is None else lost


def _reduced(obj: Any) -> Parts | str:
    reducer = copyreg.dispatch_table.get(type(obj))
    if reducer is not None:
        parts: Any = reducer(obj)
    elif type(obj).__module__ == "itertools":  # these warn of their end in Python 3.14
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            parts = obj.__reduce_ex__(5)
    else:
        parts = obj.__reduce_ex__(5)
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, tuple):
        raise CaptureError(f"{type_name(obj)} cannot be captured: its __reduce__ is of no use")
    make, args, state, items, pairs, setter = (*parts, None, None, None, None)[:6]
    if isinstance(obj, BaseException) and type(obj).__reduce__ is BaseException.__reduce__:
        make, args = NEW, (make, *args)
    return Parts(make, args, state, items and list(items), pairs and list(pairs), setter)


def _may_forget(obj: Any) -> bool:
    """Whether the class of an object says itself how it is pickled, and is not known to do that well."""
    cls = type(obj)
    is_plain_object = all(getattr(cls, hook) is getattr(object, hook) for hook in _HOOKS)
    if is_plain_object and not hasattr(cls, "__setstate__") and cls not in copyreg.dispatch_table:
        return False
    return is_user_class(cls) or cls.__module__.partition(".")[0] not in _TRUSTED


def maker_of(cls: type) -> type:
    """Whose `__new__` makes an instance: the one of a user class would have to make sense of another's arguments."""
    asks = [k for k in cls.__mro__ if {"__getnewargs__", "__getnewargs_ex__"} & vars(k).keys()]
    if asks and is_user_class(asks[0]):
        return cls
    return next(k for k in cls.__mro__ if "__new__" in vars(k) and not is_user_class(k))


def says_itself(cls: type) -> bool:
    """Whether a class of the user's says how it is pickled, rather than an installed one that knows nothing of it."""
    hooks = (*_HOOKS, "__setstate__")
    return cls in copyreg.dispatch_table or any(
        hook in vars(base) for base in cls.__mro__ if is_user_class(base) for hook in hooks
    )


_here = threading.local()


def _forgotten(walker: Walker, obj: Any, parts: Parts) -> frozenset[str] | None:
    """The names of the attributes that what is made of these parts does not have as the object has them.

    None if it is as the object was. The set is empty where the difference lies elsewhere.
    """
    if getattr(_here, "is_comparing", False):  # a part of something that is compared: its own turn comes
        return None
    if str(getattr(parts.make, "__module__", "")).partition(".")[0] in OURS:
        return None
    _here.is_comparing = True
    try:
        if _runs_code(obj, parts):
            return _lost_in_a_copy(walker, obj, parts)
        attributes, slots = parts.state if isinstance(parts.state, tuple) else (parts.state, None)
        return _lost(walker, obj, {**(attributes or {}), **(slots or {})}, None)
    finally:
        _here.is_comparing = False


def _runs_code(obj: Any, parts: Parts) -> bool:
    """Whether making an object of these parts runs anything but `__new__` of an installed class."""
    plain = (None, None, None)
    if parts.make is not NEW or parts[3:] != plain or is_user_class(maker_of(parts.args[0])):
        return True
    halves = parts.state if isinstance(parts.state, tuple) and len(parts.state) == 2 else (parts.state,)
    return hasattr(type(obj), "__setstate__") or not all(isinstance(half or {}, dict) for half in halves)


def _lost_in_a_copy(walker: Walker, obj: Any, parts: Parts) -> frozenset[str] | None:
    watch()
    owners = _owners(obj, parts)
    try:
        shared = Unharmed([parts[1:5], _state(obj)] if owners else [], owners, walker.room)
    except CaptureError:
        return _names_of(obj)
    walker.room -= shared.size
    with shared, noted_reads() as reads:
        try:
            copy = _made(parts)
            lost = _lost(walker, obj, _state(copy), copy)
            is_like = type(copy) is type(obj) and _same(walker, tuple(base_of(obj)), tuple(base_of(copy)), (obj, copy))
        except Exception:  # it is the user's code: what it may raise is anything
            return _names_of(obj)
        is_same = lost is None and is_like and not reads and not shared.has_changed()
        return None if is_same else lost or frozenset()


def _names_of(obj: Any) -> frozenset[str]:
    """The names of all attributes."""
    return frozenset(_state(obj))


def _state(obj: Any) -> dict[str, Any]:
    return {**attributes_of(obj), **slots_of(obj)}


def _lost(walker: Walker, obj: Any, now: dict[str, Any], copy: Any) -> frozenset[str] | None:
    """The attributes that differ, but for those that are no other's business; None if all is as it was."""
    was, pair = _state(obj), (obj, copy)
    lost = {name for name, value in was.items() if not _same(walker, value, now.get(name, MISSING), pair)}
    has_more = any(name not in was and name not in dict_of(obj) for name in now)
    if not is_user_class(type(obj)):  # what comes and goes there was kept for speed
        lost = {name for name in lost if name in now or getattr(type(obj), name, MISSING) is not MISSING}
        has_more = False
    found = frozenset(name for name in lost if not is_own_hash(obj, was[name]))
    return found if found or has_more else None


_SMALL = 2**32  # a number that is its own hash


def is_own_hash(obj: Any, value: Any) -> bool:
    """Whether a value is the hash of the object that keeps it, which is another one in the next process."""
    try:
        return type(value) is int and abs(value) > _SMALL and value == hash(obj)
    except Exception:  # it is the user's code: what it may raise is anything
        return False


def _owners(obj: Any, parts: Parts) -> list[Any]:
    """The classes and namespaces that making a copy may write to; none where no user code makes it."""
    classes = [cls for cls in type(obj).__mro__ if is_user_class(cls)]
    called = _CALLED if parts.make is NEW else (*_CALLED, "__init__", "__new__")
    methods = [vars(cls).get(name) for cls in classes for name in called]
    functions = [func for func in (parts.make, parts.setter, *methods) if is_user_function(func)]
    spaces = [func.__globals__ for func in functions if type(func) is types.FunctionType]
    return [*classes, *spaces] if functions or parts.make in classes else []


_CALLED = ("__setstate__", "__setattr__", "__setitem__", "append")


def _made(parts: Parts) -> Any:
    """A copy, made as the daemon would make it; what it shares with the object is the same, one level down."""
    make, args, state, items, pairs, setter = parts
    copy = maker_of(args[0]).__new__(*args) if make is NEW else make(*args)
    for item in items or ():
        copy.append(item)
    for key, value in pairs or ():
        copy[key] = value
    state = dict(state) if type(state) is dict else state
    if setter is not None:
        setter(copy, state)
    elif state is not None and hasattr(type(copy), "__setstate__"):
        copy.__setstate__(state)
    elif state is not None:
        attributes, slots = state if isinstance(state, tuple) else (state, None)
        object.__getattribute__(copy, "__dict__").update(attributes or {})
        for name, value in (slots or {}).items():
            object.__setattr__(copy, name, value)
    return copy


def _same(walker: Walker, one: Any, other: Any, pair: tuple[Any, Any]) -> bool:
    """Whether two values are captured alike; `pair` are an object and its copy, which stand for each other."""
    if one is other or (one is pair[0] and other is pair[1]):
        return True
    if type(one) is not type(other):
        return False
    if is_plain(one):
        return is_plain(other) and to_bytes(one) == to_bytes(other)
    if type(one) is types.MethodType:
        return one.__func__ is other.__func__ and _same(walker, one.__self__, other.__self__, pair)
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(_same(walker, *both, pair) for both in zip(one, other, strict=True))
    if type(one) is dict:
        return _same(walker, list(one.items()), list(other.items()), pair)
    bytes_of_one = canonical(walker.options, one)
    return bytes_of_one is not None and bytes_of_one == canonical(walker.options, other)
