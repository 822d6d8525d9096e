"""Small standard objects that wrap functions or other objects."""

import collections
import enum
import functools
import gc
import logging
import sys
import threading
import types
import typing
import weakref
from typing import Any

import cloudpickle

from jitclient.codec.graph.nodes import Node, Value
from jitclient.codec.graph.walker import Walker, describes, type_name
from jitclient.codec.user_code.names import home_of
from jitclient.codec.words import Reduced
from jitclient.errors import CaptureError

_LOCKS = (type(threading.Lock()), type(threading.RLock()))


def made_by(walker: Walker, obj: Any, op: str, *parts: Any) -> Node:
    """A node whose arguments are values, described later."""
    node = Node(op, obj)

    def describe() -> None:
        node.args = [walker.value(part) for part in parts]

    walker.later(node, describe)
    return node


def called(walker: Walker, obj: Any, func: Any, *args: Any) -> Node:
    """A node for what calling `func` with `args` gives."""
    return made_by(walker, obj, "call", func, tuple(args))


@describes(functools.partial)
def _partial(walker: Walker, partial: functools.partial[Any]) -> Value:
    return describe_partial(walker, partial)


def describe_partial(walker: Walker, partial: Any) -> Value:
    """A partial: its function and arguments; its `__dict__` changes when it is looked at."""
    node = Node("partial", partial)

    def describe() -> None:
        node.args = [
            walker.value(type(partial)),
            walker.value(partial.func),
            [walker.value(argument) for argument in partial.args],
            walker.pairs(partial.keywords),
        ]

    walker.later(node, describe)
    return node


_AS_CLOUDPICKLE = (
    classmethod,
    staticmethod,
    logging.Logger,
    logging.RootLogger,
)


@describes(*_AS_CLOUDPICKLE)
def _as_cloudpickle_does(walker: Walker, obj: Any) -> Value:
    make, args = cloudpickle.Pickler.dispatch_table[type(obj)](obj)
    return called(walker, obj, make, *args)


_VIEWS = {type({}.keys()): dict.keys, type({}.values()): dict.values, type({}.items()): dict.items}


@describes(types.MappingProxyType, *_VIEWS)
def _view(walker: Walker, view: Any) -> Value:
    """What shows another mapping, and what becomes of that."""
    (mapping,) = gc.get_referents(view)
    return called(walker, view, _VIEWS.get(type(view), types.MappingProxyType), mapping)


@describes(property)
def _property(walker: Walker, prop: property) -> Value:
    return called(walker, prop, property, prop.fget, prop.fset, prop.fdel)


@describes(functools.cached_property)
def _cached_property(walker: Walker, prop: Any) -> Value:
    # the rest of its state is a lock and a docstring
    node = called(walker, prop, functools.cached_property, prop.func)
    if prop.attrname is not None:
        node.fill("state", [["attrname", prop.attrname]], [])
    return node


@describes(functools.singledispatchmethod)
def _dispatching_method(walker: Walker, method: Any) -> Value:
    # since Python 3.13 it has a cache, which is None or not by what it was called with
    node = Node("call", method)

    def describe() -> None:
        node.args = [walker.value(type(method)), (walker.value(method.func),)]
        node.fill("state", [["dispatcher", walker.value(method.dispatcher)]], [])

    walker.later(node, describe)
    return node


@describes(functools._lru_cache_wrapper)
def _lru_cache(walker: Walker, cached: Any) -> Value:
    home = home_of(cached)
    if home is not None:
        return walker.installed(home)
    parameters = cached.cache_parameters()
    maker = functools.lru_cache
    node = Node("call", cached)

    def describe() -> None:
        made = made_by(walker, None, "call", maker, (parameters["maxsize"], parameters["typed"]))
        node.args = [made, (walker.value(cached.__wrapped__),)]

    walker.later(node, describe)
    return node


@describes(
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
)
def _descriptor(walker: Walker, descriptor: Any) -> Value:
    return Reduced("attribute", (walker.value(descriptor.__objclass__), descriptor.__name__))


@describes(types.MethodWrapperType)
def _bound_slot(walker: Walker, method: Any) -> Value:
    return Reduced("attribute", (walker.value(method.__self__), method.__name__))


@describes(*_LOCKS)
def _lock(walker: Walker, lock: Any) -> Value:
    return Node("lock", lock, ["RLock" in type(lock).__name__])


@describes(weakref.ReferenceType)
def _weak_reference(walker: Walker, reference: Any) -> Value:
    return made_by(walker, reference, "weakref", reference())


@describes(weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
def _weak_container(walker: Walker, container: Any) -> Value:
    """What it holds lives as long as the capture does, even where nothing else there holds it."""
    node = Node("call", container)

    def describe() -> None:
        node.args = [walker.value(type(container)), ()]
        if id(container) in walker.caches:
            return
        is_set = isinstance(container, weakref.WeakSet)
        held = walker.value(set(container)) if is_set else tuple(map(tuple, walker.pairs(container)))
        if len(container):
            node.fill("call_on", walker.value(type(container).update), [held], lenient=True)

    walker.later(node, describe)
    return node


@describes(typing.TypeVar)
def _type_variable(walker: Walker, variable: Any) -> Value:
    home = home_of(variable)
    if home is not None:
        return walker.installed(home)
    node = Node("typevar", variable)

    def describe() -> None:
        node.args = [
            variable.__name__,
            walker.value(variable.__bound__),
            walker.value(variable.__constraints__),
            variable.__covariant__,
            variable.__contravariant__,
            getattr(variable, "__infer_variance__", False),
        ]

    walker.later(node, describe)
    return node


@describes(typing.ParamSpec, typing.TypeVarTuple)
def _other_variable(walker: Walker, variable: Any) -> Value:
    home = home_of(variable)
    if home is not None:
        return walker.installed(home)
    return called(walker, variable, type(variable), variable.__name__)


def _type_alias(walker: Walker, alias: Any) -> Value:
    return called(walker, alias, type(alias), alias.__name__, alias.__value__)


if sys.version_info >= (3, 12):
    describes(typing.TypeAliasType)(_type_alias)


@describes(typing.NewType)
def _new_type(walker: Walker, new_type: Any) -> Value:
    home = home_of(new_type)
    if home is not None:
        return walker.installed(home)
    return called(walker, new_type, typing.NewType, new_type.__name__, new_type.__supertype__)


@describes(memoryview)
def _memory_view(walker: Walker, view: memoryview) -> Value:
    if view.format != "B" or view.ndim != 1:
        raise CaptureError("a memoryview of anything but plain bytes cannot be captured")
    return called(walker, view, memoryview, bytes(view))


@describes(types.GenericAlias)
def _generic_alias(walker: Walker, alias: Any) -> Value:
    return called(walker, alias, types.GenericAlias, alias.__origin__, alias.__args__)


def describe_enum_member(walker: Walker, member: enum.Enum) -> Value:
    kind = type(member)
    if member._name_ in kind.__members__:
        return Reduced("attribute", (walker.value(kind), member._name_))
    return called(walker, member, kind, member._value_)


@describes(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType)
def _running(walker: Walker, running: Any) -> Value:
    raise CaptureError(f"{type_name(running)} cannot be captured: it is in the middle of its work")


@describes(collections.ChainMap)
def _chain_map(walker: Walker, chain: Any) -> Value:
    return called(walker, chain, collections.ChainMap, *chain.maps)
