"""Instances: rebuilt as their class says, through `copyreg`, `__reduce__` or their attributes."""

import copyreg
import functools
import pickle
import warnings
from typing import Any

from ..errors import CaptureError
from .functions import state_of
from .graph import Node, Value
from .installed import is_user_module
from .usercode import is_user_class
from .walker import Walker, type_name

_PROTOCOL = 5
_ORDERLESS = "flax.nnx."
"""A library that puts the attributes of its objects in order whenever it touches them."""


def describe_instance(walker: Walker, obj: Any) -> Node:
    """An instance of any class."""
    if type(obj).__module__ == "flax.ids":  # a counter of the process
        walker.uses_package("flax")
        return Node("fresh", obj, ["flax.ids", "uuid"])
    node = Node("new", obj)
    walker.later(node, lambda: _describe(walker, node, obj))
    return node


def _describe(walker: Walker, node: Node, obj: Any) -> None:
    parts = _reduced(obj)
    if isinstance(parts, str):
        module = pickle.whichmodule(obj, parts)  # type: ignore[attr-defined]
        if is_user_module(module):
            raise CaptureError(f"{type_name(obj)} cannot be captured: it reduces to a bare name")
        node.op, node.args = "call", [("g", "builtins", "getattr"), ("t", ("m", module), parts)]
        return
    make, args, state, items, pairs, setter = (*parts, None, None, None, None)[:6]
    if type(obj).__module__.startswith("jax._src.custom"):
        # their __new__ wants the function, which their state holds
        node.op, node.args = "bare", [walker.value(type(obj))]
    elif make is copyreg.__newobj__:  # type: ignore[attr-defined]
        node.args = _made_by_new(walker, args[0], args[1:])
    elif isinstance(obj, BaseException) and type(obj).__reduce__ is BaseException.__reduce__:
        node.args = _made_by_new(walker, make, args)
    else:
        node.op, node.args = "call", [walker.value(make), walker.value(tuple(args))]
    if items is not None:
        node.fill("append", [walker.value(item) for item in items])
    if pairs is not None:
        node.fill("set_items", [[walker.value(k), walker.value(v)] for k, v in pairs])
    if state is not None:
        _describe_state(walker, node, obj, state, setter)


def _made_by_new(walker: Walker, cls: type, args: tuple[Any, ...]) -> list[Value]:
    """A class, arguments, and whose `__new__` to call with them.

    The one of a user class would have to make sense of another's arguments: the state says all.
    """
    maker = cls
    asks = [k for k in cls.__mro__ if {"__getnewargs__", "__getnewargs_ex__"} & vars(k).keys()]
    if not asks or not is_user_class(asks[0]):
        maker = next(k for k in cls.__mro__ if "__new__" in vars(k) and not is_user_class(k))
    given = walker.value(maker) if "__new__" in vars(maker) and maker is not cls else None
    return [walker.value(cls), [walker.value(argument) for argument in args], given]


def _reduced(obj: Any) -> Any:
    reducer = copyreg.dispatch_table.get(type(obj))
    if reducer is not None:
        parts: Any = reducer(obj)
    elif type(obj).__module__ == "itertools":  # these warn of their end in Python 3.14
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            parts = obj.__reduce_ex__(_PROTOCOL)
    else:
        parts = obj.__reduce_ex__(_PROTOCOL)
    if not isinstance(parts, (str, tuple)):
        raise CaptureError(f"{type_name(obj)} cannot be captured: its __reduce__ is of no use")
    return parts


def _describe_state(walker: Walker, node: Node, obj: Any, state: Any, setter: Any) -> None:
    if isinstance(state, dict) and any(k.__module__.startswith(_ORDERLESS) for k in type(obj).__mro__):
        state = dict(sorted(state.items()))
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
        raise CaptureError(f"{type_name(obj)} cannot be captured: nothing takes its state")
    state = _without_caches(type(obj), state_of(state or {}))
    if state or slots:
        node.fill("state", walker.pairs(state), walker.pairs(slots or {}))


def _without_caches(kind: type, state: dict[str, Any]) -> dict[str, Any]:
    """Whether a cached property was looked at before is no part of an object."""
    return {
        name: value
        for name, value in state.items()
        if not isinstance(getattr(kind, str(name), None), functools.cached_property)
    }
