"""Instances: rebuilt as their class says, through `copyreg`, `__reduce__` or their attributes."""

import copyreg
import pickle
import sys
import warnings
from typing import Any, NamedTuple

from jitclient.capture.codec.plain import Reduced
from jitclient.capture.describe.attributes import (
    NEW,
    attributes_of,
    dict_of,
    is_known_by_its_base,
    make_base,
    slots_of,
    without_caches,
)
from jitclient.capture.describe.functions import state_of
from jitclient.capture.graph.nodes import Node, type_name
from jitclient.capture.graph.walker import Walker
from jitclient.capture.user_code.installed import OURS, is_user_module
from jitclient.capture.user_code.libraries import is_settings, lasting_state, made_again
from jitclient.capture.user_code.ownership import is_made_in_c, is_user_class
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


def reduced(obj: Any) -> Parts | str:
    """Return how an object says that it is made again: what it is made of, or its name."""
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


def says_itself(cls: type) -> bool:
    """Whether a class written in Python says itself how its objects are pickled, and is not known to do that well.

    What it leaves out may be needed, and to ask it may take long: such objects are taken as they are.
    """
    if is_made_in_c(cls):
        return False
    is_plain = all(getattr(cls, hook) is getattr(object, hook) for hook in _HOOKS)
    if is_plain and not hasattr(cls, "__setstate__") and cls not in copyreg.dispatch_table:
        return False
    return is_user_class(cls) or cls.__module__.partition(".")[0] not in _TRUSTED


def maker_of(cls: type) -> type:
    """Whose `__new__` makes an instance: the one of a user class would have to make sense of another's arguments."""
    asks = [k for k in cls.__mro__ if {"__getnewargs__", "__getnewargs_ex__"} & vars(k).keys()]
    if asks and is_user_class(asks[0]):
        return cls
    return next(k for k in cls.__mro__ if "__new__" in vars(k) and not is_user_class(k))


_SMALL = 2**32  # a number that is its own hash

_ORDERLESS = "flax.nnx."
"""A library that puts the attributes of its objects in order whenever it touches them."""


def describe_instance(walker: Walker, obj: Any) -> Node:
    """An instance of any class."""
    if type(obj).__module__ == "flax.ids":  # a counter of the process
        walker.uses_package("flax")
        return Node("fresh", obj, ["flax.ids", "uuid"])
    if is_settings(obj):
        walker.uses_package("beartype")
        return Node("call", obj, [walker.value(made_again(obj)), ()])
    node = Node("new", obj)
    walker.later(node, lambda: _describe(walker, node, obj))
    return node


def _describe(walker: Walker, node: Node, obj: Any) -> None:
    cls = type(obj)
    if not is_user_class(cls):
        walker.leaves_caches_empty(dict_of(obj).values())
    is_kept = says_itself(cls) and not _keeps_its_hash(obj)
    if is_kept or is_known_by_its_base(cls):
        _describe_by_state(walker, node, obj, lenient=is_kept)
        return
    parts = reduced(obj)
    if isinstance(parts, str):
        module = pickle.whichmodule(obj, parts)  # type: ignore[attr-defined]
        if is_user_module(module):
            raise CaptureError(f"{type_name(obj)} cannot be captured: it reduces to a bare name")
        node.op, node.args = "call", [walker.value(getattr), (Reduced("module", (module,)), parts)]
    else:
        _describe_by_parts(walker, node, obj, parts)


def _keeps_its_hash(obj: Any) -> bool:
    """Whether an object keeps its hash, which is another one in the next process: only its class can make it again."""
    numbers = [value for value in {**attributes_of(obj), **slots_of(obj)}.values() if type(value) is int]
    try:
        return any(abs(value) > _SMALL and value == hash(obj) for value in numbers)
    except Exception:  # it is the user's code: what it may raise is anything
        return False


def _describe_by_state(walker: Walker, node: Node, obj: Any, *, lenient: bool) -> None:
    """An object by what it is: what its class made in C keeps, and its attributes.

    Where its class says how it is pickled, some may be of no use elsewhere: what cannot be captured of these (they are
    `lenient`) fails when it is used. What the class leaves out of its pickles may be needed, and is part of the key.
    """
    make_base(walker, node, obj)
    attributes, slots = _in_order(obj, state_of(attributes_of(obj))), slots_of(obj)
    if lenient and not is_user_class(type(obj)):
        walker.keyed_by_address.update(map(id, attributes.values()))
    if attributes or slots:
        node.fill("state", walker.pairs(attributes), walker.pairs(slots), lenient=lenient)


def _describe_by_parts(walker: Walker, node: Node, obj: Any, parts: Parts) -> None:
    make, args, state, items, pairs, setter = parts
    if type(obj).__module__.startswith("jax._src.custom"):
        # their __new__ wants the function, which their state holds
        node.op, node.args = "bare", [walker.value(type(obj))]
    elif make is NEW:
        cls, maker = args[0], maker_of(args[0])  # whose `__new__` is called
        is_other = maker is not cls and "__new__" in vars(maker) and cls.__new__ is not maker.__new__
        given = walker.value(maker) if is_other else None  # a base made in C may have no name
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
        state = _in_order(obj, state)
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
    state = lasting_state(obj, without_caches(obj, state_of(state or {})))
    if state or slots:
        node.fill("state", walker.pairs(state), walker.pairs(slots or {}))


def _in_order(obj: Any, state: dict[str, Any]) -> dict[str, Any]:
    is_orderless = any(cls.__module__.startswith(_ORDERLESS) for cls in type(obj).__mro__)
    return dict(sorted(state.items())) if is_orderless else state
