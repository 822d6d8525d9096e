"""Methods whose result shape depends on values: the size is computed first, fetching as little as possible."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jitclient.arrays.operands import is_array


class MethodCall(NamedTuple):
    """A method call; `arrays` are the positions and names of its array arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arrays: tuple[int | str, ...]


def sized(call: MethodCall, array: Any) -> MethodCall:
    """An equivalent call that JAX can trace.

    Raises:
        TypeError, ValueError, IndexError: the arguments are invalid, which is for JAX to report.
    """
    return _SIZED[call.name](array, *call.args, **call.kwargs) if call.name in _SIZED else call


def _nonzero(array: Any, *, size: int | None = None, fill_value: Any = None) -> MethodCall:
    if size is None:
        if not array.shape:
            raise ValueError("a scalar has no positions")
        size = int((array if array.dtype == bool else array != 0).sum())
    return MethodCall("nonzero", (), {"size": size, "fill_value": fill_value}, ())


def _compress(array: Any, condition: Any, axis: Any = None, **options: Any) -> MethodCall:
    if options.get("size") is not None:
        return MethodCall("compress", (condition,), {"axis": axis, **options}, (0,))
    if not is_array(condition) or options:
        raise TypeError("no condition")
    chosen = np.asarray(condition).astype(bool)
    if chosen.ndim != 1 or chosen[_length(array, axis) :].any():
        raise ValueError("the condition is for another array")
    return MethodCall("take", (np.nonzero(chosen)[0],), {"axis": axis}, (0,))


def _repeat(array: Any, repeats: Any, axis: Any = None, **options: Any) -> MethodCall:
    if not is_array(repeats) or np.ndim(repeats) == 0:
        return MethodCall("repeat", (repeats,), {"axis": axis, **options}, ())
    if options.get("total_repeat_length") is None:
        if not array.shape:
            raise ValueError("a scalar is repeated by an array")
        options["total_repeat_length"] = int(np.broadcast_to(np.ravel(repeats), [_length(array, axis)]).sum())
    return MethodCall("repeat", (repeats,), {"axis": axis, **options}, (0,))


def _choose(array: Any, choices: Any, out: Any = None, mode: str = "raise") -> MethodCall:
    if mode == "raise":
        chosen = np.asarray(array)
        if chosen.dtype.kind not in "iu" or not ((chosen >= 0) & (chosen < len(choices))).all():
            raise ValueError("there is no such choice")
        mode = "clip"
    return MethodCall("choose", (choices,), {"out": out, "mode": mode}, (0,))


def _length(array: Any, axis: Any) -> int:
    length: int = array.size if axis is None else array.shape[operator.index(axis)]
    return length


_SIZED: dict[str, Callable[..., MethodCall]] = {
    "choose": _choose,
    "compress": _compress,
    "nonzero": _nonzero,
    "repeat": _repeat,
}
