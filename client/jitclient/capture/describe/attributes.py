"""State of an object, read without running user code: its `__dict__`, its slots, and the part that its layout keeps.

The layout is the nearest base class made in C.
"""

import builtins
import copyreg
import functools
from collections.abc import Callable
from types import FunctionType, MemberDescriptorType
from typing import Any, NamedTuple

import numpy as np

from jitclient.capture.codec.pickler import to_bytes
from jitclient.capture.codec.plain import is_plain
from jitclient.capture.codec.tracers import is_tracer
from jitclient.capture.graph.nodes import Node, type_name
from jitclient.capture.graph.walker import Walker
from jitclient.capture.user_code.names import MISSING
from jitclient.capture.user_code.ownership import is_made_in_c, is_user_class, is_user_function
from jitclient.errors import CaptureError

NEW: Any = copyreg.__newobj__  # type: ignore[attr-defined]
# Extension modules may make heap types too; this flag identifies them.
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
_VALUES = (int, float, complex, str, bytes, tuple)
_PURE = (
    "abs all any bool bytes chr complex dict divmod enumerate filter float frozenset hex int isinstance len list map "
    "max min ord pow range repr reversed round slice sorted str sum tuple zip"
)
_PURE_BUILTINS = {name: getattr(builtins, name) for name in _PURE.split()}


def dict_of(obj: Any) -> dict[str, Any]:
    """Return the `__dict__` of an object, bypassing overrides of its class; empty if there is none."""
    try:
        held = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return held if type(held) is dict else {}


def is_own_dict(obj: Any) -> bool:
    """Return whether a dict has its items as attributes, by `self.__dict__ = self`, which pickles lose."""
    try:
        return issubclass(type(obj), dict) and object.__getattribute__(obj, "__dict__") is obj
    except AttributeError:
        return False


def attributes_of(obj: Any) -> dict[str, Any]:
    """Return the `__dict__` of an object without cached values that are not part of it; slots are not included."""
    return without_caches(obj, dict_of(obj))


def slots_of(obj: Any) -> dict[str, Any]:
    """Return the values in an object's slots, sorted by name."""
    found: dict[str, Any] = {}
    for cls in type(obj).__mro__:
        for name, slot in vars(cls).items() if not is_made_in_c(cls) else ():
            if isinstance(slot, MemberDescriptorType):
                try:
                    found.setdefault(name, slot.__get__(obj))
                except AttributeError:
                    continue
    return dict(sorted(found.items()))


def without_caches(obj: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state without values of cached properties that a copy would compute equally.

    A cached value is part of the object only if a new computation would give another value: the property may count,
    draw random numbers, or have read attributes that changed since. A new computation runs the user's code twice, so it
    is tried only on plain values. If it fails, or if the cached value is not plain, the value is kept. Tracers, and
    values of properties that are not the user's, are always left out.
    """
    return {name: value for name, value in state.items() if not _is_recomputable(obj, name, value, state)}


def _is_recomputable(obj: Any, name: str, value: Any, state: dict[str, Any]) -> bool:
    prop = next((vars(base)[name] for base in type(obj).__mro__ if name in vars(base)), None)
    if not isinstance(prop, functools.cached_property):
        return False
    if not is_user_function(prop.func) or is_tracer(value):
        # A tracer is useless outside its trace.
        return True
    if not is_plain(value):
        return False
    again = _from_plain_values(prop.func, type(obj), {k: v for k, v in state.items() if k != name})
    return again is not MISSING and is_plain(again) and to_bytes(again) == to_bytes(value)


def _from_plain_values(func: Any, cls: type, state: dict[str, Any]) -> Any:
    """Return the result of a property that reads only plain values; MISSING if it needs anything else."""
    if type(func) is not FunctionType or func.__closure__ or func.__defaults__:
        return MISSING
    shared = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    alone = FunctionType(func.__code__, {**_plain_ones(func.__globals__), "__builtins__": _PURE_BUILTINS})
    try:
        return alone(_PlainView(_plain_ones(shared | state)))
    except Exception:
        # The function read something else, or failed on these values.
        return MISSING


def _plain_ones(names: dict[Any, Any]) -> dict[str, Any]:
    return {n: value for n, value in names.items() if is_plain(value) and isinstance(n, str) and not n.startswith("__")}


class _PlainView:
    """Stand-in for an object, with only its plain values as attributes."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        object.__setattr__(self, "_values", values)

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, "_values")[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


def layout_of(cls: type) -> type:
    """Return the nearest base class made in C, which determines the layout of instances in memory."""
    return next(base for base in cls.__mro__ if is_made_in_c(base) or base.__flags__ & _IMMUTABLE)


class LayoutPart(NamedTuple):
    """Construction of the layout's part of an object.

    Attributes:
        new: arguments of the layout's `__new__`.
        calls: methods of the layout, with their arguments, called on the object afterwards.
    """

    new: tuple[Any, ...]
    calls: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = ()


def layout_part_of(obj: Any) -> LayoutPart:
    """Return how to construct the layout's part of an object.

    Raises:
        CaptureError: the layout class has no way to read or restore its part.
    """
    layout: Any = layout_of(type(obj))
    if layout is object:
        return LayoutPart(())
    if layout in _VALUES:
        return LayoutPart(layout.__getnewargs__(obj) if layout is not complex else (complex.__complex__(obj),))
    if layout in _CONTENT:
        read, fill = _CONTENT[layout]
        return LayoutPart((read(obj),)) if fill is None else LayoutPart((), ((fill, (read(obj),)),))
    if issubclass(layout, BaseException):
        return LayoutPart(obj.args)
    return _as_reduced(obj, layout)


_CONTENT: dict[type, tuple[Callable[[Any], Any], Callable[..., Any] | None]] = {
    np.ndarray: (lambda obj: np.ndarray.view(obj, np.ndarray), None),
    bytearray: (lambda obj: bytes(bytearray.copy(obj)), bytearray.extend),
    dict: (dict.copy, dict.update),
    frozenset: (frozenset, None),
    list: (lambda obj: list.__getitem__(obj, slice(None)), list.extend),
    set: (set, set.update),
}
"""Container type -> function that reads its content, and method that fills an empty one; None if made with it."""


def is_known_by_its_layout(cls: type) -> bool:
    """Return whether an object's content can be read and restored without its class's iteration and assignment."""
    layout = layout_of(cls)
    return _is_kd_tree(layout) or (layout in _CONTENT and is_user_class(cls))


def describe_layout_part(walker: Walker, node: Node, obj: Any) -> None:
    """Describe how an object is made, without its attributes."""
    layout, base = layout_of(type(obj)), layout_part_of(obj)
    cls, parts = walker.value(type(obj)), [walker.value(part) for part in base.new]
    if layout is object:
        node.op, node.args = "bare", [cls]
    elif layout is np.ndarray:
        node.op, node.args = "call", [walker.value(np.ndarray.view), (*parts, cls)]
    else:
        node.op, node.args = "new", [cls, parts, walker.value(layout)]
    for method, arguments in base.calls:
        node.fill("call_on", walker.value(method), [walker.value(argument) for argument in arguments])


def _as_reduced(obj: Any, layout: Any) -> LayoutPart:
    """Return the layout's part according to the layout's own pickling, bypassing overrides of subclasses."""
    make, args, state, items, pairs = (*_reduction(obj, layout), None, None, None)[:5]
    if make not in (type(obj), layout, NEW):
        raise CaptureError(
            f"{type_name(obj)} cannot be captured: the data of its base class {layout.__name__} cannot be read"
        )
    if make is NEW:
        args = args[1:]
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    if make is not NEW and layout.__init__ is not object.__init__:
        calls.append((layout.__init__, tuple(args)))
    if items is not None:
        calls.append((layout.extend, (list(items),)))
    calls += [(layout.__setitem__, pair) for pair in pairs or ()]
    if hasattr(layout, "__setstate__") and state is not None:
        calls.append((layout.__setstate__, (_without_pointers(layout, state) if _is_kd_tree(layout) else state,)))
    return LayoutPart(tuple(args), tuple(calls))


def _reduction(obj: Any, layout: Any) -> tuple[Any, ...]:
    if layout.__reduce__ is not object.__reduce__:
        found = layout.__reduce__(obj)
    elif layout.__reduce_ex__ is not object.__reduce_ex__:
        found = layout.__reduce_ex__(obj, 5)
    elif layout.__getstate__ is not object.__getstate__:
        found = NEW, (type(obj),), layout.__getstate__(obj)
    else:
        raise CaptureError(f"{type_name(obj)} cannot be captured: {layout.__name__} cannot be pickled")
    if not isinstance(found, tuple):
        raise CaptureError(f"{type_name(obj)} cannot be captured: __reduce__ returned only a name")
    return found


def _is_kd_tree(layout: type) -> bool:
    """Return whether a class is scipy's k-d tree."""
    return layout.__name__ == "cKDTree" and layout.__module__.startswith("scipy.")


def _without_pointers(layout: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the state of a k-d tree with zeros in place of pointers.

    The nodes point at each other, and a tree that receives the state computes its own pointers. The pointers are the
    words in which the state of a copy differs.
    """
    nodes, *rest = state
    copy = layout.__new__(layout)
    copy.__setstate__(state)
    raw, other = (np.frombuffer(part.tobytes(), np.int64) for part in (nodes, copy.__getstate__()[0]))
    clean = np.where(raw == other, raw, 0).astype(np.int64)
    return np.frombuffer(clean.tobytes(), nodes.dtype).reshape(nodes.shape), *rest
