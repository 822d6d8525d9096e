"""What the steps of a daemon's bytes may do: what is marked here, and nothing else. None of it calls what they name."""

import collections
import enum
import functools
import sys
import types
import weakref
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitclient.codec import values
from jitclient.codec.plain import is_plain
from jitclient.codec.reducers.jitted import rebuild_jit
from jitclient.codec.reducers.layouts import layout_of
from jitclient.codec.results.places import Placed
from jitclient.codec.steps import make_values
from jitclient.codec.user_code.ownership import is_user_class
from jitclient.errors import CaptureError

_Function = Callable[..., Any]
_Pairs = tuple[tuple[str, Any], ...]

MAKERS: dict[str, _Function] = {}
"""By name, what makes a new object."""

COMPLETERS: dict[str, _Function] = {}
"""By name, what completes one that was made so."""

FINDERS: dict[str, _Function] = {"dtype": values.dtype, "named": values.resolve, "slice": slice}
"""By name, what gives a value that has no identity of its own, or is there already."""


def _makes(function: _Function) -> _Function:
    MAKERS[function.__name__] = function
    return function


def _completes(function: _Function) -> _Function:
    COMPLETERS[function.__name__] = function
    return function


def _finds(function: _Function) -> _Function:
    FINDERS[function.__name__] = function
    return function


# Of what these are given nothing may run: whatever is converted, iterated, hashed or looked into has a type of ours.


def _check(value: Any, *kinds: type) -> Any:
    """The value, if it is of one of these very types."""
    if type(value) not in kinds:
        raise CaptureError(f"a {type(value).__qualname__} is where a {kinds[0].__qualname__} belongs")
    return value


def _class(value: Any) -> type:
    if not isinstance(type(value), type) or not issubclass(type(value), type):
        raise CaptureError(f"a {type(value).__qualname__} is where a class belongs")
    return value  # type: ignore[no-any-return]


def _pairs(value: Any, *kinds: type) -> dict[Any, Any]:
    """The dict of such pairs, whose keys are of these types, or can be hashed without code of others."""
    for pair in _check(value, tuple):
        key, _ = _check(pair, tuple)
        _check(key, *kinds) if kinds else _check_hashable(key)
    return dict(value)


def _items(value: Any) -> tuple[Any, ...]:
    """Items of a set."""
    for item in _check(value, tuple):
        _check_hashable(item)
    return value  # type: ignore[no-any-return]


def _check_hashable(value: Any) -> None:
    if type(value) in (tuple, frozenset):
        for part in value:
            _check_hashable(part)
    elif (
        type(value) not in values.AS_THEY_ARE
        and not isinstance(value, enum.Enum)
        and type(value).__hash__ not in _HASHES
    ):
        raise CaptureError(f"a {type(value).__qualname__} is a key, and its hash is its class's own")


_HASHES: tuple[Any, ...] = (
    object.__hash__,
    type.__hash__,
    FunctionType.__hash__,
    types.BuiltinFunctionType.__hash__,
    np.dtype.__hash__,
)


@_completes
def extend(target: list[Any], items: tuple[Any, ...]) -> None:
    """Fills a list."""
    _check(target, list).extend(_check(items, tuple))


@_completes
def set_items(target: dict[Any, Any], pairs: _Pairs) -> None:
    """Fills a dict."""
    _check(target, dict).update(_pairs(pairs))


@_completes
def update(target: set[Any], items: tuple[Any, ...]) -> None:
    """Fills a set."""
    _check(target, set).update(_items(items))


@_finds
def frozen(*items: Any) -> frozenset[Any]:
    """A frozenset."""
    return frozenset(_items(items))


@_finds
def module(name: str) -> types.ModuleType:
    """An installed module that this process uses."""
    if name not in sys.modules:
        raise CaptureError(f"{name} is not loaded in this process")
    return sys.modules[name]


@_finds
def member(cls: Any, name: str) -> Any:
    """A member of an enum."""
    if not issubclass(_class(cls), enum.Enum):
        raise CaptureError(f"{cls.__qualname__} is no enum")
    return cls.__members__[_check(name, str)]


@_finds
def scalar(kind: np.dtype[Any], data: bytes) -> Any:
    """A number of numpy's."""
    return np.frombuffer(_check(data, bytes), _check_dtype(kind))[0]


def _check_dtype(kind: Any) -> np.dtype[Any]:
    if not issubclass(type(kind), np.dtype):
        raise CaptureError(f"a {type(kind).__qualname__} is where a dtype belongs")
    return kind  # type: ignore[no-any-return]


@_finds
def none_type() -> type:
    """The type of None, which no module holds."""
    return type(None)


@_finds
def abstract_sharding(axes: tuple[tuple[str, int, str], ...], spec: tuple[Any, ...], memory: str | None) -> Any:
    """A sharding over axes (name, size, type) of no devices, as JAX's types of arrays have one."""
    from jax import sharding

    if not is_plain((axes, spec, memory)):
        raise CaptureError("a sharding of what is not plain")
    names, sizes, kinds = zip(*axes, strict=True) if axes else ((), (), ())
    mesh = sharding.AbstractMesh(sizes, names, axis_types=tuple(sharding.AxisType[kind] for kind in kinds))
    return sharding.NamedSharding(mesh, sharding.PartitionSpec(*spec), memory_kind=memory)


@_makes
def empty(kind: str) -> Any:
    """A container of one of Python's own types."""
    return {"list": list, "dict": dict, "set": set}[_check(kind, str)]()


@_makes
def cell() -> CellType:
    """A cell of a closure, empty for now."""
    return CellType()


@_completes
def set_cell(held: CellType, content: Any) -> None:
    """Fills a cell."""
    _check(held, CellType).cell_contents = content


@_makes
def function(placed: Placed, name: str, cells: tuple[CellType, ...]) -> FunctionType:
    """A function, without what `finish` gives it."""
    _check(placed, Placed)
    func = FunctionType(placed.code, placed.names, _check(name, str), None, _check(cells, tuple))
    func.__qualname__ = placed.code.co_qualname
    return func


@_completes
def finish(func: FunctionType, defaults: Any, keywords: _Pairs | None, attributes: _Pairs) -> None:
    """Gives a function its defaults and attributes."""
    given, wrapped = _pairs(attributes, str), "__wrapped__"
    if any(name.startswith("__") and name != wrapped for name in given):  # Python and others look there
        raise CaptureError("a function has attributes with names of Python's own")
    _check(func, FunctionType).__defaults__ = _check(defaults, tuple, type(None))
    func.__kwdefaults__ = None if keywords is None else _pairs(keywords, str)
    if wrapped in given:
        functools.update_wrapper(func, _check(given[wrapped], FunctionType, _type_of_jitted()))
    vars(func).update(given)


def _type_of_jitted() -> type:
    """That of functions under `jax.jit`, where this process has loaded jax."""
    jax = sys.modules.get("jax")
    return type(jax.numpy.sin) if jax else FunctionType


@_makes
def method(func: Any, owner: Any) -> MethodType:
    """A bound method."""
    return MethodType(func, owner)


@_makes
def partial(kind: str, func: Any, arguments: tuple[Any, ...], keywords: _Pairs) -> Any:
    """A partial of `functools`, or JAX's own."""
    jax = sys.modules.get("jax")
    kinds = {"functools": functools.partial, **({"jax": jax.tree_util.Partial} if jax else {})}
    return kinds[_check(kind, str)](func, *_check(arguments, tuple), **_pairs(keywords, str))


@_makes
def jit(func: Any, options: _Pairs) -> Any:
    """A jitted function, of a function: of others JAX asks what their signature is."""
    inner = func.__func__ if type(func) is MethodType else func
    _check(inner, FunctionType)
    return rebuild_jit(func, _pairs(options, str))


@_makes
def jax_array(data: Any, is_weak: bool) -> Any:
    """An array of JAX's."""
    return make_values.jax_array(_check(data, np.ndarray), _check(is_weak, bool))


@_makes
def treedef(is_leaf: bool, node: tuple[type, Any] | None, children: tuple[Any, ...]) -> Any:
    """The definition of a tree."""
    if node is not None:
        kind, _ = _check(node, tuple)
        _class(kind)
    return make_values.treedef(_check(is_leaf, bool), node, _check(children, tuple))


@_makes
def instance(cls: type) -> Any:
    """An object without attributes; its class's own code does not run.

    Raises:
        CaptureError: it is a class of Python's own, or one whose objects do something when they go.
    """
    top = _class(cls).__module__.partition(".")[0]
    if layout_of(cls) is not object or hasattr(cls, "__del__"):
        raise CaptureError(f"{cls.__qualname__} cannot be made of its attributes")
    if not is_user_class(cls) and top in sys.stdlib_module_names:
        raise CaptureError(f"{top}.{cls.__qualname__} is of Python's own library")
    return object.__new__(cls)


@_completes
def restore(obj: Any, attributes: _Pairs, slots: _Pairs) -> None:
    """Gives an object of `instance` its attributes, and what is in its slots."""
    if layout_of(type(obj)) is not object or isinstance(obj, type):
        raise CaptureError(f"{type(obj).__qualname__} cannot be made of its attributes")
    if attributes:
        object.__getattribute__(obj, "__dict__").update(_pairs(attributes, str))
    for name, value in _pairs(slots, str).items():
        slot = next(vars(cls)[name] for cls in type(obj).__mro__ if name in vars(cls))
        if not isinstance(slot, types.MemberDescriptorType):
            raise CaptureError(f"{type(obj).__qualname__} has no slot {name!r}")
        slot.__set__(obj, value)


@_makes
def tuple_of(cls: type, items: tuple[Any, ...]) -> Any:
    """A named tuple, or another kind of tuple."""
    if layout_of(_class(cls)) is not tuple:
        raise CaptureError(f"{cls.__qualname__} is no kind of tuple")
    return tuple.__new__(cls, _check(items, tuple))


@_makes
def mapping_proxy(mapping: Any) -> Any:
    """What shows a mapping."""
    return types.MappingProxyType(_check(mapping, dict, collections.OrderedDict, collections.defaultdict))


@_makes
def ordered_dict(pairs: _Pairs) -> Any:
    """An ordered dict."""
    return collections.OrderedDict(_pairs(pairs))


@_makes
def default_dict(factory: Any, pairs: _Pairs) -> Any:
    """A dict that asks its factory for what is missing."""
    return collections.defaultdict(factory, _pairs(pairs))


@_makes
def weak(target: Any) -> Callable[[], Any]:
    """A weak reference."""
    return (lambda: None) if target is None else weakref.ref(target)


@_makes
def array(
    kind: np.dtype[Any], shape: tuple[int, ...], data: bytes, is_writeable: bool, by_column: bool
) -> np.ndarray[Any, Any]:
    """An array of numpy's."""
    if not is_plain((shape, data, is_writeable, by_column)):
        raise CaptureError("an array of what is not plain")
    made: np.ndarray[Any, Any] = make_values.numpy_array(_check_dtype(kind), shape, data, is_writeable, by_column)
    return made


@_makes
def fresh_id() -> Any:
    """What flax counts its objects with: the process's next one."""
    return values.resolve("flax.ids", "uuid")()
