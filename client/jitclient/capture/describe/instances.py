"""Describers for instances: rebuilt through `copyreg`, `__reduce__` or their attributes."""

import copyreg
import pickle
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jitclient.capture.codec.plain import Reduced
from jitclient.capture.describe.attributes import (
    NEW,
    attributes_of,
    describe_layout_part,
    dict_of,
    is_known_by_its_layout,
    is_own_dict,
    slots_of,
    without_caches,
)
from jitclient.capture.describe.functions import state_of
from jitclient.capture.graph.nodes import Node, type_name
from jitclient.capture.graph.walker import Walker
from jitclient.capture.user_code.installed import OWN_PACKAGES, is_user_module
from jitclient.capture.user_code.libraries import is_compiled_validator, is_settings, rebuild_call, stable_state
from jitclient.capture.user_code.ownership import is_made_in_c, is_user_class
from jitclient.core.compat import reduce_iterator
from jitclient.errors import CaptureError

_HOOKS = ("__reduce_ex__", "__reduce__", "__getstate__")
_TRUSTED = frozenset({*sys.stdlib_module_names, *OWN_PACKAGES, "flax", "jax", "jaxlib", "ml_dtypes", "numpy"})
"""Packages whose own pickling restores their objects.

The attributes of these objects include caches, which come and go.
"""


class Parts(NamedTuple):
    """Complete result of `__reduce_ex__`, with the iterators read into lists."""

    make: Any
    args: tuple[Any, ...]
    state: Any = None
    items: list[Any] | None = None
    pairs: list[tuple[Any, Any]] | None = None
    setter: Any = None


def reduced(obj: Any) -> Parts | str:
    """Return the parts from which an object's class makes it again, or the object's name.

    Raises:
        CaptureError: `__reduce__` returned neither a string nor a tuple.
    """
    reducer = copyreg.dispatch_table.get(type(obj))
    if reducer is not None:
        parts: Any = reducer(obj)
    elif type(obj).__module__ == "itertools":
        parts = reduce_iterator(obj)
    else:
        parts = obj.__reduce_ex__(5)
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, tuple):
        raise CaptureError(f"{type_name(obj)} cannot be captured: __reduce__ returned neither a string nor a tuple")
    make, args, state, items, pairs, setter = (*parts, None, None, None, None)[:6]
    if isinstance(obj, BaseException) and type(obj).__reduce__ is BaseException.__reduce__:
        make, args = NEW, (make, *args)
    return Parts(make, args, state, items and list(items), pairs and list(pairs), setter)


def has_custom_pickling(cls: type) -> bool:
    """Return whether a Python class defines its own pickling and is not known to pickle its objects completely.

    Such pickling may leave out needed state and may be slow, so these objects are captured by their state instead.
    """
    if is_made_in_c(cls):
        return False
    is_plain = all(getattr(cls, hook) is getattr(object, hook) for hook in _HOOKS)
    if is_plain and not hasattr(cls, "__setstate__") and cls not in copyreg.dispatch_table:
        return False
    return is_user_class(cls) or cls.__module__.partition(".")[0] not in _TRUSTED


def maker_of(cls: type) -> type:
    """Return the class whose `__new__` makes an instance of `cls`.

    The `__new__` of a user class is used only if a user class provides its arguments (`__getnewargs__`). Otherwise the
    nearest installed class makes the instance, because the arguments are meant for that class.
    """
    asks = [k for k in cls.__mro__ if {"__getnewargs__", "__getnewargs_ex__"} & vars(k).keys()]
    if asks and is_user_class(asks[0]):
        return cls
    return next(k for k in cls.__mro__ if "__new__" in vars(k) and not is_user_class(k))


# A smaller number may equal the hash because the class hashes an object by that number, which is its own hash.
_SMALL = 2**32

_ORDERLESS = "flax.nnx."
"""Prefix of the modules of flax.nnx, which sorts the attributes of its objects whenever it accesses them."""


def describe_instance(walker: Walker, obj: Any) -> Node:
    """Describe an instance of any class."""
    if type(obj).__module__ == "flax.ids":
        # The object is a value of flax's process-wide counter.
        walker.uses_package("flax")
        return Node("fresh", obj, ["flax.ids", "uuid"])
    if is_compiled_validator(obj):
        raise CaptureError("an object that pydantic compiled cannot be captured")
    if is_settings(obj):
        walker.uses_package("beartype")
        return Node("call", obj, [walker.value(rebuild_call(obj)), ()])
    node = Node("new", obj)
    walker.later(node, lambda: _describe(walker, node, obj))
    return node


_OF_ERRORS = ("__cause__", "__context__", "__suppress_context__", "__traceback__")


def _left_out(walker: Walker, obj: Any) -> list[str]:
    """Return the state of an object that its own pickling leaves out, so far as it has no default value.

    It counts for the key. A trace on the daemon that reads it differs from the own trace, which then decides.
    """
    if isinstance(obj, np.ndarray):
        return ["hard mask"] if dict_of(obj).get("_hardmask") is True else []
    if not isinstance(obj, BaseException):
        return []
    # Not by the attributes of its class, which may be the user's.
    held = [vars(BaseException)[name].__get__(obj) for name in _OF_ERRORS] if "errors" in walker.options else []
    found = [name for name, value in zip(_OF_ERRORS, held, strict=False) if not (value is None or value is False)]
    names = [vars(kind)["name"].__get__(obj) for kind in (NameError, AttributeError) if isinstance(obj, kind)]
    return found + [f"name {name}" for name in names if type(name) is str]


def _describe(walker: Walker, node: Node, obj: Any) -> None:
    cls = type(obj)
    if left_out := _left_out(walker, obj):
        node.fill("differs", *left_out)
    if is_own_dict(obj):
        node.fill("own_dict")
    if not is_user_class(cls):
        walker.leaves_caches_empty(dict_of(obj).values())
    is_kept = has_custom_pickling(cls) and not _keeps_its_hash(obj)
    if is_kept or is_known_by_its_layout(cls):
        _describe_by_state(walker, node, obj, optional=is_kept)
        return
    parts = reduced(obj)
    if isinstance(parts, str):
        module = pickle.whichmodule(obj, parts)  # type: ignore[attr-defined]
        if is_user_module(module):
            raise CaptureError(f"{type_name(obj)} cannot be captured: __reduce__ returned only a name")
        node.op, node.args = "call", [walker.value(getattr), (Reduced("module", (module,)), parts)]
    else:
        _describe_by_parts(walker, node, obj, parts)


def _keeps_its_hash(obj: Any) -> bool:
    """Return whether an object stores its hash, which differs in the next process.

    Only its class can make such an object again.
    """
    return _holds_hash(obj, attributes_of(obj), slots_of(obj))


def _holds_hash(obj: Any, *states: Mapping[str, Any]) -> bool:
    numbers = [value for state in states for value in state.values() if isinstance(value, int) and abs(value) > _SMALL]
    try:
        return bool(numbers) and hash(obj) in numbers
    except Exception:
        # The user's `__hash__` may raise any exception.
        return False


def _raise_if_holds_hash(obj: Any, *states: Mapping[str, Any]) -> None:
    """Check that an object's state does not contain its hash: the key would differ in each process.

    Raises:
        CaptureError: the state contains the hash.
    """
    if _holds_hash(obj, *states):
        raise CaptureError(f"{type_name(obj)} cannot be captured: it stores its hash, which differs between processes")


def _fill_state(
    walker: Walker,
    node: Node,
    obj: Any,
    attributes: Mapping[str, Any],
    slots: Mapping[str, Any],
    optional: bool = False,
) -> None:
    """Restore an object's attributes and slots."""
    _raise_if_holds_hash(obj, attributes, slots)
    if attributes or slots:
        node.fill("state", walker.pairs(attributes), walker.pairs(slots), optional=optional)


def _describe_by_state(walker: Walker, node: Node, obj: Any, *, optional: bool) -> None:
    """Describe an object by its state: the part that its layout keeps, and its attributes.

    State that the class leaves out of its pickles may be needed, and is part of the key. If the class defines its own
    pickling, some state may be useless in another process. The state is then `optional`: a part that cannot be captured
    fails only when it is used.
    """
    describe_layout_part(walker, node, obj)
    attributes, slots = _in_order(obj, state_of(attributes_of(obj))), slots_of(obj)
    if optional and not is_user_class(type(obj)):
        walker.keyed_by_address.update(map(id, attributes.values()))
    _fill_state(walker, node, obj, attributes, slots, optional)


def _describe_by_parts(walker: Walker, node: Node, obj: Any, parts: Parts) -> None:
    make, args, state, items, pairs, setter = parts
    if type(obj).__module__.startswith("jax._src.custom"):
        # Their `__new__` requires the function, which is part of their state.
        node.op, node.args = "bare", [walker.value(type(obj))]
    elif make is NEW:
        # Python calls the `__new__` of `maker`, not of `cls`.
        cls, maker = args[0], maker_of(args[0])
        is_other = maker is not cls and "__new__" in vars(maker) and cls.__new__ is not maker.__new__
        # A base class made in C may have no name to capture.
        given = walker.value(maker) if is_other else None
        node.args = [walker.value(cls), [walker.value(argument) for argument in args[1:]], given]
    else:
        node.op, node.args = "call", [walker.value(make), walker.value(tuple(args))]
    if items is not None:
        node.fill("append", [walker.value(item) for item in items])
    if pairs is not None:
        node.fill("set_items", [[walker.value(k), walker.value(v)] for k, v in pairs])
    if state is not None:
        _describe_state(walker, node, obj, state, setter)


def _describe_state(walker: Walker, node: Node, obj: Any, state: Any, setter: Any) -> None:
    if isinstance(state, dict):
        state = stable_state(obj, _in_order(obj, state))
        _raise_if_holds_hash(obj, state)
    if setter is not None:
        node.fill("call_setter", walker.value(setter), walker.value(state))
        return
    if hasattr(type(obj), "__setstate__"):
        node.fill("setstate", walker.value(state))
        return
    slots: Any = {}
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if not isinstance(state or {}, dict) or not isinstance(slots or {}, dict):
        raise CaptureError(f"{type_name(obj)} cannot be captured: the class has no way to restore the object's state")
    state = stable_state(obj, without_caches(obj, state_of(state or {})))
    _fill_state(walker, node, obj, state, stable_state(obj, slots or {}))


def _in_order(obj: Any, state: dict[str, Any]) -> dict[str, Any]:
    is_orderless = any(cls.__module__.startswith(_ORDERLESS) for cls in type(obj).__mro__)
    return dict(sorted(state.items())) if is_orderless else state
