"""What the bytes of a made value may call: what is marked here, nothing else; and nothing here calls what they name."""

import collections
import functools
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitclient.capture import rebuild_jit
from jitclient.capture.layouts import layout_of
from jitclient.capture.make_values import jax_array, treedef
from jitclient.capture.usercode import is_user_class
from jitclient.codec.values import resolve
from jitclient.errors import CaptureError
from jitclient.made.places import Placed

MAKERS: dict[str, Callable[..., Any]] = {"jax_array": jax_array, "treedef": treedef, "rebuild_jit": rebuild_jit}
"""By name, what may be called."""


def _may_be_called(maker: Callable[..., Any]) -> Callable[..., Any]:
    MAKERS[maker.__name__] = maker
    return maker


@_may_be_called
def named(module: str, name: str) -> Any:
    """What an installed module holds: as a value, which no bytes can call."""
    return resolve(module, name)


@_may_be_called
def module(name: str) -> types.ModuleType:
    """An installed module that this process uses."""
    if name not in sys.modules:
        raise CaptureError(f"{name} is not loaded in this process")
    return sys.modules[name]


@_may_be_called
def cell() -> CellType:
    """A cell of a closure, empty for now."""
    return CellType()


@_may_be_called
def function(placed: Placed, name: str, cells: tuple[CellType, ...]) -> FunctionType:
    """A function, without what `finish` gives it."""
    if type(placed) is not Placed:
        raise CaptureError("a function was sent without the place of its code")
    func = FunctionType(placed.code, placed.names, name, None, tuple(cells))
    func.__qualname__ = placed.code.co_qualname
    return func


@_may_be_called
def finish(func: FunctionType, state: tuple[tuple[Any, ...], Any, Any, dict[str, Any]]) -> None:
    """Fills what a function reads: its cells, each with its content, the defaults, and the attributes."""
    contents, defaults, keyword_defaults, attributes = state
    for held, content in contents:
        if type(held) is CellType:
            held.cell_contents = content
    func.__defaults__, func.__kwdefaults__ = defaults, keyword_defaults
    if "__wrapped__" in attributes:
        functools.update_wrapper(func, attributes["__wrapped__"])
    vars(func).update(attributes)


@_may_be_called
def method(func: Any, owner: Any) -> MethodType:
    """A bound method."""
    return MethodType(func, owner)


@_may_be_called
def partial(kind: Any, func: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A partial of `functools`, or JAX's own."""
    return _partials()[kind](func, *arguments, **keywords)


def _partials() -> dict[str, Any]:
    jax = sys.modules.get("jax")
    return {"functools": functools.partial, **({"jax": jax.tree_util.Partial} if jax else {})}


@_may_be_called
def instance(cls: type) -> Any:
    """An object without attributes; its class's own code does not run.

    Raises:
        CaptureError: it is a class of Python's own, or one whose objects do something when they go.
    """
    top = cls.__module__.partition(".")[0]
    if layout_of(cls) is not object or hasattr(cls, "__del__"):
        raise CaptureError(f"{cls.__qualname__} cannot be made of its attributes")
    if not is_user_class(cls) and top in sys.stdlib_module_names:
        raise CaptureError(f"{top}.{cls.__qualname__} is of Python's own library")
    return object.__new__(cls)


@_may_be_called
def restore(obj: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Gives an object of `instance` its attributes, and what is in its slots."""
    attributes, slots = state
    if layout_of(type(obj)) is not object or isinstance(obj, type):
        raise CaptureError(f"{type(obj).__qualname__} cannot be made of its attributes")
    if attributes:
        object.__getattribute__(obj, "__dict__").update(attributes)
    for name, value in slots.items():
        slot = next(vars(cls)[name] for cls in type(obj).__mro__ if name in vars(cls))
        if not isinstance(slot, types.MemberDescriptorType):
            raise CaptureError(f"{type(obj).__qualname__} has no slot {name!r}")
        slot.__set__(obj, value)


@_may_be_called
def tuple_of(cls: type, items: tuple[Any, ...]) -> Any:
    """A named tuple, or another kind of tuple."""
    if layout_of(cls) is not tuple:
        raise CaptureError(f"{cls.__qualname__} is no kind of tuple")
    return tuple.__new__(cls, items)


@_may_be_called
def member(cls: Any, name: str) -> Any:
    """A member of an enum."""
    return cls.__members__[name]


@_may_be_called
def plain(kind: str, arguments: tuple[Any, ...]) -> Any:
    """A value of one of Python's own types that a pickle has no word for."""
    return _PLAIN[kind](*arguments)


_PLAIN: Mapping[str, Callable[..., Any]] = {
    "complex": complex,
    "slice": slice,
    "range": range,
    "mappingproxy": types.MappingProxyType,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict,
    "ellipsis": lambda: ...,
    "NotImplementedType": lambda: NotImplemented,
    "NoneType": lambda: type(None),
}


@_may_be_called
def weak(target: Any) -> Callable[[], Any]:
    """A weak reference."""
    return (lambda: None) if target is None else weakref.ref(target)


@_may_be_called
def dtype(name: str) -> np.dtype[Any]:
    """Numpy's word for a kind of number."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


@_may_be_called
def array(kind: np.dtype[Any], shape: tuple[int, ...], data: bytes) -> np.ndarray[Any, Any]:
    """An array of numpy's."""
    return np.frombuffer(data, kind).reshape(shape).copy()


@_may_be_called
def scalar(kind: np.dtype[Any], data: bytes) -> Any:
    """A number of numpy's."""
    return np.frombuffer(data, kind)[0]


@_may_be_called
def abstract_sharding(axes: tuple[tuple[str, int, str], ...], spec: tuple[Any, ...], memory: str | None) -> Any:
    """A sharding over axes (name, size, type) of no devices, as JAX's types of arrays have one."""
    from jax import sharding

    names, sizes, types = zip(*axes, strict=True) if axes else ((), (), ())
    kinds = tuple(sharding.AxisType[kind] for kind in types)
    mesh = sharding.AbstractMesh(sizes, names, axis_types=kinds)
    return sharding.NamedSharding(mesh, sharding.PartitionSpec(*spec), memory_kind=memory)


@_may_be_called
def fresh_id() -> Any:
    """What flax counts its objects with: the process's next one."""
    return resolve("flax.ids", "uuid")()


IDS = frozenset(map(id, MAKERS.values()))
"""Of what may be called: whatever else could be hashed or compared would run code of its own."""
