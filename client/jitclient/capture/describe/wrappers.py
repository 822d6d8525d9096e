"""Describers for small standard objects that wrap functions or other objects."""

import collections
import enum
import functools
import gc
import logging
import threading
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle

from jitclient.capture.codec.plain import Reduced
from jitclient.capture.describe.attributes import dict_of
from jitclient.capture.graph.nodes import Node, Value, type_name
from jitclient.capture.graph.schedule import fingerprint_of, order_sets
from jitclient.capture.graph.walker import Walker, describes, describes_as
from jitclient.capture.user_code.installed import is_user_module
from jitclient.core.compat import TYPE_ALIASES
from jitclient.core.digests import digest
from jitclient.errors import CaptureError

_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_VIEWS = {type({}.keys()): dict.keys, type({}.values()): dict.values, type({}.items()): dict.items}
_AS_CLOUDPICKLE = (classmethod, staticmethod)

_Call = tuple[Any, ...]
"""Function, followed by its arguments."""


_WEAK = frozenset({"data", "_dirty_len", "_iterating", "_pending_removals", "_remove"})
_OF_FUNCTIONS = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__annotations__", "__type_params__", "__wrapped__"})
_OF_VARIABLES = frozenset(
    {"__bound__", "__constraints__", "__contravariant__", "__covariant__", "__module__", "__name__"}
)
_OF_MAKERS: dict[type, frozenset[str]] = {
    collections.ChainMap: frozenset({"maps"}),
    functools.cached_property: frozenset({"__doc__", "__module__", "attrname", "func", "lock"}),
    functools.singledispatchmethod: frozenset({"_method_cache", "dispatcher", "func"}),
    functools._lru_cache_wrapper: _OF_FUNCTIONS | {"cache_parameters"},
    typing.NewType: _OF_FUNCTIONS | {"__supertype__"},
    **dict.fromkeys(_AS_CLOUDPICKLE, _OF_FUNCTIONS | {"__isabstractmethod__"}),
    **dict.fromkeys((typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple), _OF_VARIABLES),
    **dict.fromkeys((weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet), _WEAK),
}
"""Attributes that these objects have without anyone's doing."""

_OF_LOGGERS = frozenset({*vars(logging.Logger("")), "manager"})
"""Attributes that each logger has."""


def _as_cloudpickle_does(obj: Any) -> _Call:
    make, args = cloudpickle.Pickler.dispatch_table[type(obj)](obj)
    return make, *args


def _call_of_memory_view(view: memoryview) -> _Call:
    if view.format != "B" or view.ndim != 1:
        raise CaptureError("a memoryview of anything but plain bytes cannot be captured")
    return memoryview, bytes(view) if view.readonly else bytearray(view)


def _call_of_alias(alias: types.GenericAlias) -> _Call:
    if alias.__unpacked__:
        return next, iter(types.GenericAlias(alias.__origin__, alias.__args__))  # type: ignore[arg-type]
    return types.GenericAlias, alias.__origin__, alias.__args__


def _fill_attributes(walker: Walker, node: Node, obj: Any) -> None:
    """Let an object have the attributes that a program has set on it."""
    made = _OF_MAKERS.get(type(obj), frozenset())
    own = {name: value for name, value in dict_of(obj).items() if name not in made}
    if own:
        node.fill("state", walker.pairs(own), [])


_CALLS: dict[type, Callable[[Any], _Call]] = {
    **dict.fromkeys(_AS_CLOUDPICKLE, _as_cloudpickle_does),
    **dict.fromkeys(_VIEWS, lambda view: (_VIEWS[type(view)], *gc.get_referents(view))),
    collections.ChainMap: lambda chain: (collections.ChainMap, *chain.maps),
    collections.Counter: lambda counter: (collections.Counter, dict(counter)),
    memoryview: _call_of_memory_view,
    property: lambda prop: (property, prop.fget, prop.fset, prop.fdel),
    types.GenericAlias: _call_of_alias,
    types.MappingProxyType: lambda view: (types.MappingProxyType, *gc.get_referents(view)),
    # The evaluated form of a reference is left out, since it is computed again on demand.
    typing.ForwardRef: lambda ref: (
        functools.partial(typing.ForwardRef, is_class=ref.__forward_is_class__),
        ref.__forward_arg__,
        ref.__forward_is_argument__,
        ref.__forward_module__,
    ),
    typing.NewType: lambda new_type: (typing.NewType, new_type.__name__, new_type.__supertype__),
    typing.ParamSpec: lambda variable: (
        functools.partial(typing.ParamSpec, covariant=variable.__covariant__, contravariant=variable.__contravariant__),
        variable.__name__,
    ),
    typing.TypeVarTuple: lambda variable: (typing.TypeVarTuple, variable.__name__),
    **dict.fromkeys(TYPE_ALIASES, lambda alias: (type(alias), alias.__name__, alias.__value__)),
}
"""Type -> function that returns the call which makes an equal object."""

_HELD_BY_MODULES = {typing.NewType, typing.ParamSpec, typing.TypeVarTuple}


def _called(walker: Walker, node: Node, obj: Any) -> None:
    make, *args = _CALLS[type(obj)](obj)
    node.args = [walker.value(make), walker.value(tuple(args))]
    _fill_attributes(walker, node, obj)


describes_as("call", *_CALLS.keys() - _HELD_BY_MODULES)(_called)
describes_as("call", *_HELD_BY_MODULES, by_name=True)(_called)


@describes_as("call", functools.cached_property)
def _cached_property(walker: Walker, node: Node, prop: Any) -> None:
    # The rest of its state is a lock and a docstring.
    node.args = [walker.value(functools.cached_property), (walker.value(prop.func),)]
    if prop.attrname is not None:
        node.fill("state", [["attrname", prop.attrname]], [])
    _fill_attributes(walker, node, prop)


@describes_as("call", logging.Logger, logging.RootLogger)
def _logger(walker: Walker, node: Node, logger: logging.Logger) -> None:
    """Describe a logger by its name and state, which packages may read, and by other attributes that code names.

    A trace on the daemon, whose logger has the default state, differs if it reads another one.
    """
    make, *args = _as_cloudpickle_does(logger)
    node.args = [walker.value(make), tuple(args)]
    node.fill("differs", *_state_of_loggers(logger))
    for name, value in vars(logger).items():
        if name in _OF_LOGGERS:
            continue
        if name in walker.options:
            node.fill("differs", name, walker.value(value))
        walker.left_out.add(name)


def _state_of_loggers(logger: logging.Logger | None) -> list[str]:
    """Return the state of a logger and of those above it."""
    found = [f"disabled up to {logging.root.manager.disable}"]
    while logger is not None:
        filters = [type_name(one) for one in logger.filters]
        handlers = [f"{type_name(one)} {one.level}" for one in logger.handlers]
        found.append(repr((logger.name, logger.level, logger.propagate, logger.disabled, filters, handlers)))
        logger = logger.parent
    return found


@describes_as("partial", functools.partial)
def describe_partial(walker: Walker, node: Node, partial: Any) -> None:
    """Describe a partial by its function, its arguments, and the attributes that were set on it."""
    node.args = [
        walker.value(type(partial)),
        walker.value(partial.func),
        [walker.value(argument) for argument in partial.args],
        walker.pairs(partial.keywords),
    ]
    if vars(partial):
        node.fill("state", walker.pairs(vars(partial)), [])


@describes_as("call", functools.singledispatchmethod)
def _dispatching_method(walker: Walker, node: Node, method: Any) -> None:
    # The calls made so far decide whether it has a cache.
    node.args = [walker.value(type(method)), (walker.value(method.func),)]
    node.fill("state", [["dispatcher", walker.value(method.dispatcher)]], [])
    _fill_attributes(walker, node, method)


@describes_as("cached", functools._lru_cache_wrapper, by_name=True)
def _lru_cache(walker: Walker, node: Node, cached: Any) -> None:
    """Describe a function with a cache: it is made with an empty cache.

    A digest of the cached results is captured too, because they determine the results of calls.
    """
    parameters = cached.cache_parameters()
    maker = Node("call", None, [walker.value(functools.lru_cache), (parameters["maxsize"], parameters["typed"])])
    node.args = [maker, (walker.value(cached.__wrapped__),), _digest_of_results(walker, cached)]
    _fill_attributes(walker, node, cached)


_describing: list[Any] = []
"""Caches whose results are being described; a result may lead back to its cache."""


def _digest_of_results(walker: Walker, cached: Any) -> bytes:
    """Return a digest of a user function's cached arguments and results, in any order; empty if there are none."""
    # The caches of packages are not captured.
    is_of_user = is_user_module(cached.__wrapped__.__module__)
    if not (is_of_user and cached.cache_info().currsize) or any(cached is other for other in _describing):
        return b""
    _describing.append(cached)
    try:
        found = [_canonical_digest(walker.options, pair) for pair in _results_in(cached)]
    finally:
        _describing.pop()
    if None in found:
        raise CaptureError(f"the cache of {cached.__qualname__} holds an object that cannot be captured")
    return digest(b"".join(sorted(filter(None, found))))


def _canonical_digest(options: frozenset[str], value: Any) -> bytes | None:
    """Return a digest of everything that a capture would hold for a value; None if the value cannot be captured."""
    alone = Walker(options)
    found = alone.value(value)
    alone.run()
    if alone.failed:
        return None
    order_sets(alone.unordered)
    return fingerprint_of(found)


def _results_in(cached: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a cache: the key that Python made from the arguments, and the result."""
    held = gc.get_referents(cached)
    by_key: dict[Any, Any] = next(each for each in held if type(each) is dict)
    found = []
    for key, result in by_key.items():
        if type(result).__name__ == "_lru_list_elem":
            # The cache is bounded, and its entries form a linked list.
            at = next(n for n, each in enumerate(held) if each is key and held[n + 2] is type(result))
            result = held[at + 1]
        parts = tuple("a keyword follows" if type(part) is object else part for part in key) if _is_made(key) else key
        found.append((parts, result))
    return found


def _is_made(key: Any) -> bool:
    """Return whether Python made a key from several arguments."""
    return type(key) is tuple or type(key).__name__ == "_HashedSeq"


@describes(
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.MethodWrapperType,
)
def _attribute(walker: Walker, obj: Any) -> Value:
    owner = obj.__self__ if type(obj) is types.MethodWrapperType else obj.__objclass__
    return Reduced("attribute", (walker.value(owner), obj.__name__))


@describes(*_LOCKS)
def _lock(walker: Walker, lock: Any) -> Value:
    node = Node("lock", lock, ["RLock" in type(lock).__name__])
    if "locks" in walker.options and repr(lock).startswith("<locked"):
        node.fill("differs", "locked")
    return node


@describes_as("weakref", weakref.ReferenceType)
def _weak_reference(walker: Walker, node: Node, reference: Any) -> None:
    node.args = [walker.value(reference())]
    if reference.__callback__ is not None:
        node.fill("differs", "callback")


@describes_as("call", weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
def _weak_container(walker: Walker, node: Node, container: Any) -> None:
    """Describe a weak container.

    In the daemon, its items live as long as the capture, even if nothing else there holds them.
    """
    node.args = [walker.value(type(container)), ()]
    _fill_attributes(walker, node, container)
    if id(container) in walker.caches:
        return
    is_set = isinstance(container, weakref.WeakSet)
    held = walker.value(set(container)) if is_set else tuple(map(tuple, walker.pairs(container)))
    if len(container):
        node.fill("call_on", walker.value(type(container).update), [held], optional=True)


@describes_as("typevar", typing.TypeVar, by_name=True)
def _type_variable(walker: Walker, node: Node, variable: Any) -> None:
    node.args = [
        variable.__name__,
        walker.value(variable.__bound__),
        walker.value(variable.__constraints__),
        variable.__covariant__,
        variable.__contravariant__,
        getattr(variable, "__infer_variance__", False),
    ]
    _fill_attributes(walker, node, variable)


@describes_as("call")
def _member_of_no_name(walker: Walker, node: Node, member: enum.Enum) -> None:
    node.args = [walker.value(type(member)), (walker.value(member._value_),)]


def describe_enum_member(walker: Walker, member: enum.Enum) -> Value:
    """Describe an enum member by its name, or by its value if it is a combination of flags, which has no name."""
    kind = type(member)
    if member._name_ in kind.__members__:
        return Reduced("attribute", (walker.value(kind), member._name_))
    return _member_of_no_name(walker, member)


@describes(types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, types.FrameType)
def _running(walker: Walker, running: Any) -> Value:
    raise CaptureError(f"{type_name(running)} cannot be captured: it is running or suspended")
