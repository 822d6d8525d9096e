"""What the steps of a daemon's bytes may do: what is marked here, and nothing else. None of it calls what they name."""

import collections
import enum
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

_Function = Callable[..., Any]
_Pairs = tuple[tuple[str, Any], ...]

MAKERS: dict[str, _Function] = {"jax_array": jax_array, "treedef": treedef}
"""By name, what makes a new object."""

COMPLETERS: dict[str, _Function] = {"extend": list.extend, "set_items": dict.update, "update": set.update}
"""By name, what completes one that was made so."""

FINDERS: dict[str, _Function] = {"frozenset": lambda *items: frozenset(items), "named": resolve, "slice": slice}
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


@_finds
def module(name: str) -> types.ModuleType:
    """An installed module that this process uses."""
    if name not in sys.modules:
        raise CaptureError(f"{name} is not loaded in this process")
    return sys.modules[name]


@_finds
def member(cls: Any, name: str) -> Any:
    """A member of an enum."""
    if not isinstance(cls, enum.EnumMeta):
        raise CaptureError(f"{cls!r:.80} is no enum")
    return cls.__members__[name]


@_finds
def dtype(name: str) -> np.dtype[Any]:
    """Numpy's word for a kind of number."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


@_finds
def scalar(kind: np.dtype[Any], data: bytes) -> Any:
    """A number of numpy's."""
    return np.frombuffer(data, kind)[0]


@_finds
def none_type() -> type:
    """The type of None, which no module holds."""
    return type(None)


@_finds
def abstract_sharding(axes: tuple[tuple[str, int, str], ...], spec: tuple[Any, ...], memory: str | None) -> Any:
    """A sharding over axes (name, size, type) of no devices, as JAX's types of arrays have one."""
    from jax import sharding

    names, sizes, kinds = zip(*axes, strict=True) if axes else ((), (), ())
    mesh = sharding.AbstractMesh(sizes, names, axis_types=tuple(sharding.AxisType[kind] for kind in kinds))
    return sharding.NamedSharding(mesh, sharding.PartitionSpec(*spec), memory_kind=memory)


@_makes
def empty(kind: str) -> Any:
    """A container of one of Python's own types."""
    return {"list": list, "dict": dict, "set": set}[kind]()


@_makes
def cell() -> CellType:
    """A cell of a closure, empty for now."""
    return CellType()


@_completes
def set_cell(held: CellType, content: Any) -> None:
    """Fills a cell."""
    held.cell_contents = content


@_makes
def function(placed: Placed, name: str, cells: tuple[CellType, ...]) -> FunctionType:
    """A function, without what `finish` gives it."""
    if type(placed) is not Placed:
        raise CaptureError("a function was sent without the place of its code")
    func = FunctionType(placed.code, placed.names, name, None, tuple(cells))
    func.__qualname__ = placed.code.co_qualname
    return func


@_completes
def finish(func: FunctionType, defaults: Any, keywords: _Pairs | None, attributes: _Pairs) -> None:
    """Gives a function its defaults and attributes."""
    func.__defaults__, func.__kwdefaults__ = defaults, None if keywords is None else dict(keywords)
    given = dict(attributes)
    if "__wrapped__" in given:
        functools.update_wrapper(func, given["__wrapped__"])
    vars(func).update(given)


@_makes
def method(func: Any, owner: Any) -> MethodType:
    """A bound method."""
    return MethodType(func, owner)


@_makes
def partial(kind: str, func: Any, arguments: tuple[Any, ...], keywords: _Pairs) -> Any:
    """A partial of `functools`, or JAX's own."""
    jax = sys.modules.get("jax")
    kinds = {"functools": functools.partial, **({"jax": jax.tree_util.Partial} if jax else {})}
    return kinds[kind](func, *arguments, **dict(keywords))


@_makes
def jit(func: Any, options: _Pairs) -> Any:
    """A jitted function."""
    return rebuild_jit(func, dict(options))


@_makes
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


@_completes
def restore(obj: Any, attributes: _Pairs, slots: _Pairs) -> None:
    """Gives an object of `instance` its attributes, and what is in its slots."""
    if layout_of(type(obj)) is not object or isinstance(obj, type):
        raise CaptureError(f"{type(obj).__qualname__} cannot be made of its attributes")
    if attributes:
        object.__getattribute__(obj, "__dict__").update(attributes)
    for name, value in slots:
        slot = next(vars(cls)[name] for cls in type(obj).__mro__ if name in vars(cls))
        if not isinstance(slot, types.MemberDescriptorType):
            raise CaptureError(f"{type(obj).__qualname__} has no slot {name!r}")
        slot.__set__(obj, value)


@_makes
def tuple_of(cls: type, items: tuple[Any, ...]) -> Any:
    """A named tuple, or another kind of tuple."""
    if layout_of(cls) is not tuple:
        raise CaptureError(f"{cls.__qualname__} is no kind of tuple")
    return tuple.__new__(cls, items)


@_makes
def plain(kind: str, *arguments: Any) -> Any:
    """An object of one of Python's own types that is made with what it holds."""
    return _PLAIN[kind](*arguments)


_PLAIN: Mapping[str, _Function] = {
    "mappingproxy": types.MappingProxyType,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict,
}


@_makes
def weak(target: Any) -> Callable[[], Any]:
    """A weak reference."""
    return (lambda: None) if target is None else weakref.ref(target)


@_makes
def array(kind: np.dtype[Any], shape: tuple[int, ...], data: bytes) -> np.ndarray[Any, Any]:
    """An array of numpy's."""
    return np.frombuffer(data, kind).reshape(shape).copy()


@_makes
def fresh_id() -> Any:
    """What flax counts its objects with: the process's next one."""
    return resolve("flax.ids", "uuid")()
