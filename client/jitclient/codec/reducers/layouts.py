"""What an object is below its attributes: the part that a class made in C keeps, read and made without user code."""

import copyreg
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jitclient.codec.graph.nodes import Node, type_name
from jitclient.codec.graph.walker import Walker
from jitclient.codec.user_code.ownership import is_made_in_c
from jitclient.errors import CaptureError

NEW: Any = copyreg.__newobj__  # type: ignore[attr-defined]
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: what extension modules make may be heap types too
_VALUES = (int, float, complex, str, bytes, tuple)
_WORD = 8


def layout_of(cls: type) -> type:
    """The nearest class made in C, which says how instances lie in memory."""
    return next(base for base in cls.__mro__ if is_made_in_c(base) or base.__flags__ & _IMMUTABLE)


class Base(NamedTuple):
    """How the layout's part of an object is made: by its `__new__`, then by calls of its methods on the object."""

    new: tuple[Any, ...]
    calls: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = ()


def base_of(obj: Any) -> Base:
    """The layout's part of an object.

    Raises:
        CaptureError: its class has no way to say what that is.
    """
    layout: Any = layout_of(type(obj))
    if layout is object:
        return Base(())
    if layout in _VALUES:
        return Base(layout.__getnewargs__(obj) if layout is not complex else (complex.__complex__(obj),))
    if layout in CONTENT:
        read, fill = CONTENT[layout]
        return Base((read(obj),)) if fill is None else Base((), ((fill, (read(obj),)),))
    if issubclass(layout, BaseException):
        return Base(obj.args)
    return _as_reduced(obj, layout)


CONTENT: dict[type, tuple[Callable[[Any], Any], Callable[..., Any] | None]] = {
    np.ndarray: (lambda obj: np.ndarray.view(obj, np.ndarray), None),
    bytearray: (lambda obj: bytes(bytearray.copy(obj)), bytearray.extend),
    dict: (dict.copy, dict.update),
    frozenset: (frozenset, None),
    list: (lambda obj: list.__getitem__(obj, slice(None)), list.extend),
    set: (set, set.update),
}
"""Containers -> what reads their content, and what gives it to an empty one; None if they are made with it."""


def make_base(walker: Walker, node: Node, obj: Any) -> None:
    """Describe how an object is made, without its attributes."""
    layout, base = layout_of(type(obj)), base_of(obj)
    cls, parts = walker.value(type(obj)), [walker.value(part) for part in base.new]
    if layout is object:
        node.op, node.args = "bare", [cls]
    elif layout is np.ndarray:
        node.op, node.args = "call", [walker.value(np.ndarray.view), (*parts, cls)]
    else:
        node.op, node.args = "new", [cls, parts, walker.value(layout)]
    for method, arguments in base.calls:
        node.fill("call_on", walker.value(method), [walker.value(argument) for argument in arguments])


def _as_reduced(obj: Any, layout: Any) -> Base:
    """What the layout's own pickling says, whatever a subclass made of that."""
    make, args, state, items, pairs = (*_reduction(obj, layout), None, None, None)[:5]
    if make not in (type(obj), layout, NEW):
        raise CaptureError(f"{type_name(obj)} cannot be captured: nothing says what its {layout.__name__} part is")
    if make is NEW:
        args = args[1:]
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    if make is not NEW and layout.__init__ is not object.__init__:
        calls.append((layout.__init__, tuple(args)))
    if items is not None:
        calls.append((layout.extend, (list(items),)))
    calls += [(layout.__setitem__, pair) for pair in pairs or ()]
    if hasattr(layout, "__setstate__") and state is not None:
        calls.append((layout.__setstate__, (_without_pointers(layout, state) if is_kd_tree(layout) else state,)))
    return Base(tuple(args), tuple(calls))


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
        raise CaptureError(f"{type_name(obj)} cannot be captured: it reduces to a bare name")
    return found


def is_kd_tree(layout: type) -> bool:
    """Whether this is scipy's k-d tree."""
    return layout.__name__ == "cKDTree" and layout.__module__.startswith("scipy.")


def _without_pointers(layout: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
    """The state of a k-d tree, whose nodes point at each other: a tree that takes it finds its own nodes again.

    Pointers are the words in which a copy differs.
    """
    nodes, *rest = state
    copy = layout.__new__(layout)
    copy.__setstate__(state)
    raw, other = (np.frombuffer(part.tobytes(), np.int64) for part in (nodes, copy.__getstate__()[0]))
    clean = np.where(raw == other, raw, 0).astype(np.int64)
    return np.frombuffer(clean.tobytes(), nodes.dtype).reshape(nodes.shape), *rest
