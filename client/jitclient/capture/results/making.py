"""Functions that the steps in a daemon's bytes may call; the tables here are complete.

None of them calls an object that the bytes name, and no code of their arguments runs: values that are converted,
iterated, hashed or inspected must have exactly one of the types accepted here.
"""

import collections
import enum
import functools
import sys
import types
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np

from jitclient.capture.codec import values
from jitclient.capture.codec.plain import is_plain
from jitclient.capture.describe.attributes import layout_of
from jitclient.capture.describe.jitted import rebuild_jit
from jitclient.capture.results.places import Placed
from jitclient.capture.steps import make_values
from jitclient.capture.user_code.ownership import is_user_class
from jitclient.errors import CaptureError

_Pairs = tuple[tuple[str, Any], ...]


# ---- checks


def _check(value: Any, *kinds: type) -> Any:
    """Return the value if its type is exactly one of these; otherwise raise CaptureError."""
    if type(value) not in kinds:
        raise CaptureError(f"a {type(value).__qualname__} was sent in place of a {kinds[0].__qualname__}")
    return value


def _check_class(value: Any) -> type:
    if not issubclass(type(value), type):
        raise CaptureError(f"a {type(value).__qualname__} was sent in place of a class")
    return value  # type: ignore[no-any-return]


def _check_dtype(kind: Any) -> np.dtype[Any]:
    if not issubclass(type(kind), np.dtype):
        raise CaptureError(f"a {type(kind).__qualname__} was sent in place of a dtype")
    return kind  # type: ignore[no-any-return]


def _pairs(value: Any, *kinds: type) -> dict[Any, Any]:
    """Return a dict made from a tuple of pairs.

    Keys must have exactly one of the given types or, if none is given, a hash that runs no other code.
    """
    for pair in _check(value, tuple):
        key, _ = _check(pair, tuple)
        _check(key, *kinds) if kinds else _check_hashable(key)
    return dict(value)


def _items(value: Any) -> tuple[Any, ...]:
    """Return the items of a set after a check that their hashes run no other code."""
    for item in _check(value, tuple):
        _check_hashable(item)
    return value  # type: ignore[no-any-return]


def _check_hashable(value: Any) -> None:
    if type(value) in (tuple, frozenset):
        for part in value:
            _check_hashable(part)
    elif (
        type(value) not in values.SELF_WRITTEN
        and not isinstance(value, enum.Enum)
        and type(value).__hash__ not in _HASHES
    ):
        raise CaptureError(f"a {type(value).__qualname__} cannot be a key, because its class defines __hash__")


_HASHES: tuple[Any, ...] = (
    object.__hash__,
    type.__hash__,
    FunctionType.__hash__,
    types.BuiltinFunctionType.__hash__,
    np.dtype.__hash__,
)


# ---- finders: values without an identity of their own, or that exist already


def _module(name: str) -> types.ModuleType:
    if name not in sys.modules:
        raise CaptureError(f"{name} is not loaded in this process")
    return sys.modules[name]


def _member(cls: Any, name: str) -> Any:
    if not issubclass(_check_class(cls), enum.Enum):
        raise CaptureError(f"{cls.__qualname__} is not an enum")
    return cls.__members__[_check(name, str)]


def _abstract_sharding(axes: tuple[tuple[str, int, str], ...], spec: tuple[Any, ...], memory: str | None) -> Any:
    """Make a sharding for abstract axes (name, size, type) without devices, as JAX's types of arrays have."""
    from jax import sharding

    if not is_plain((axes, spec, memory)):
        raise CaptureError("a sharding with arguments that are not plain values")
    names, sizes, kinds = zip(*axes, strict=True) if axes else ((), (), ())
    mesh = sharding.AbstractMesh(sizes, names, axis_types=tuple(sharding.AxisType[kind] for kind in kinds))
    return sharding.NamedSharding(mesh, sharding.PartitionSpec(*spec), memory_kind=memory)


PATH_ENTRIES = {"DictKey": "key", "FlattenedIndexKey": "key", "GetAttrKey": "name", "SequenceKey": "idx"}
"""Type of an entry in JAX's tree paths -> the attribute that it holds."""


def _path_entry(kind: str, value: Any) -> Any:
    from jax import tree_util

    if kind not in PATH_ENTRIES or not is_plain(value):
        raise CaptureError(f"{kind} of {value!r:.80} is not part of a path in a tree")
    return getattr(tree_util, kind)(value)


FINDERS: dict[str, Callable[..., Any]] = {
    "abstract_sharding": _abstract_sharding,
    "dtype": values.dtype,
    "frozen": lambda *items: frozenset(_items(items)),
    "member": _member,
    "module": _module,
    "path_entry": _path_entry,
    "scalar": lambda kind, data: np.frombuffer(_check(data, bytes), _check_dtype(kind))[0],
    "slice": slice,
}


# ---- makers: new objects


def _function(placed: Placed, name: str, cells: tuple[CellType, ...]) -> FunctionType:
    _check(placed, Placed)
    func = FunctionType(placed.code, placed.names, _check(name, str), None, _check(cells, tuple))
    func.__qualname__ = placed.code.co_qualname
    return func


def _partial(kind: str, func: Any, arguments: tuple[Any, ...], keywords: _Pairs) -> Any:
    jax = sys.modules.get("jax")
    kinds = {"functools": functools.partial, **({"jax": jax.tree_util.Partial} if jax else {})}
    return kinds[_check(kind, str)](func, *_check(arguments, tuple), **_pairs(keywords, str))


def _jit(func: Any, options: _Pairs) -> Any:
    # JAX asks other callables for their signature, which could run their code.
    _check(func.__func__ if type(func) is MethodType else func, FunctionType)
    return rebuild_jit(func, _pairs(options, str))


def _treedef(is_leaf: bool, node: tuple[type, Any] | None, children: tuple[Any, ...]) -> Any:
    if node is not None:
        kind, _ = _check(node, tuple)
        _check_class(kind)
    return make_values.treedef(_check(is_leaf, bool), node, _check(children, tuple))


def _instance(cls: type) -> Any:
    """Make an object without attributes.

    No code of its class runs, not even when the object is deleted.
    """
    top = _check_class(cls).__module__.partition(".")[0]
    if layout_of(cls) is not object or hasattr(cls, "__del__"):
        raise CaptureError(f"{cls.__qualname__} cannot be rebuilt from its attributes")
    if not is_user_class(cls) and top in sys.stdlib_module_names:
        raise CaptureError(f"{top}.{cls.__qualname__} belongs to Python's standard library")
    return object.__new__(cls)


def _tuple_of(cls: type, items: tuple[Any, ...]) -> Any:
    """Make a named tuple, or an instance of another subclass of tuple."""
    if layout_of(_check_class(cls)) is not tuple:
        raise CaptureError(f"{cls.__qualname__} is not a subclass of tuple")
    return tuple.__new__(cls, _check(items, tuple))


def _array(
    kind: np.dtype[Any], shape: tuple[int, ...], data: bytes, is_writeable: bool, strides: tuple[int, ...]
) -> Any:
    if not is_plain((shape, data, is_writeable, strides)):
        raise CaptureError("an array with arguments that are not plain values")
    return make_values.numpy_array(_check_dtype(kind), shape, data, is_writeable, strides)


def _fresh_id() -> Any:
    """Return the next value of the counter with which flax numbers its objects in this process."""
    return values.resolve("flax.ids", "uuid")()


_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
_CONTAINERS: dict[str, type] = {"list": list, "dict": dict, "set": set}

MAKERS: dict[str, Callable[..., Any]] = {
    "array": _array,
    "cell": CellType,
    "default_dict": lambda factory, pairs: collections.defaultdict(factory, _pairs(pairs)),
    "empty": lambda kind: _CONTAINERS[_check(kind, str)](),
    "fresh_id": _fresh_id,
    "function": _function,
    "instance": _instance,
    "jax_array": lambda data, is_weak: make_values.jax_array(_check(data, np.ndarray), _check(is_weak, bool)),
    "jit": _jit,
    "mapping_proxy": lambda mapping: types.MappingProxyType(_check(mapping, *_MAPPINGS)),
    "method": MethodType,
    "ordered_dict": lambda pairs: collections.OrderedDict(_pairs(pairs)),
    "partial": _partial,
    # A JAX traceback can only be made for the current place, which is this call.
    "traceback": lambda: values.resolve("jaxlib._jax", "Traceback").get_traceback(),
    "treedef": _treedef,
    "tuple_of": _tuple_of,
    "weak": make_values.weak_reference,
}


# ---- completers of objects made by the steps


def _finish(func: FunctionType, defaults: Any, keywords: _Pairs | None, attributes: _Pairs) -> None:
    """Set the defaults and attributes of a function."""
    given, wrapped = _pairs(attributes, str), "__wrapped__"
    if any(name.startswith("__") and name != wrapped for name in given):
        # Python and other code read attributes with such names.
        raise CaptureError("a function has attributes with names of Python's own")
    _check(func, FunctionType).__defaults__ = _check(defaults, tuple, type(None))
    func.__kwdefaults__ = None if keywords is None else _pairs(keywords, str)
    if wrapped in given:
        jax = sys.modules.get("jax")
        functools.update_wrapper(func, _check(given[wrapped], FunctionType, *([type(jax.numpy.sin)] if jax else [])))
    vars(func).update(given)


def _restore(obj: Any, attributes: _Pairs, slots: _Pairs) -> None:
    """Set the attributes and slots of an object made by `instance`."""
    if layout_of(type(obj)) is not object or isinstance(obj, type):
        raise CaptureError(f"{type(obj).__qualname__} cannot be rebuilt from its attributes")
    if attributes:
        object.__getattribute__(obj, "__dict__").update(_pairs(attributes, str))
    for name, value in _pairs(slots, str).items():
        slot = next(vars(cls)[name] for cls in type(obj).__mro__ if name in vars(cls))
        if not isinstance(slot, types.MemberDescriptorType):
            raise CaptureError(f"{type(obj).__qualname__} has no slot {name!r}")
        slot.__set__(obj, value)


COMPLETERS: dict[str, Callable[..., None]] = {
    "extend": lambda target, items: _check(target, list).extend(_check(items, tuple)),
    "finish": _finish,
    "restore": _restore,
    "set_cell": lambda held, content: setattr(_check(held, CellType), "cell_contents", content),
    "set_items": lambda target, pairs: _check(target, dict).update(_pairs(pairs)),
    "update": lambda target, items: _check(target, set).update(_items(items)),
}
