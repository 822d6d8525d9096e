"""Methods and properties that return arrays: a table, and their calls on the daemon."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jitclient.arrays.dispatch import argument, constant, here, is_array, is_for_here, on_daemon, read
from jitclient.wire.array_transport import is_key

PROPERTIES = ("T", "mT", "real", "imag", "flat")

METHODS: dict[str, tuple[int | str, ...]] = {
    "__contains__": (0,),
    "all": ("where",),
    "any": ("where",),
    "argmax": (),
    "argmin": (),
    "argpartition": (),
    "argsort": (),
    "astype": (),
    "byteswap": (),
    "choose": (0, "choices"),
    "clip": (0, 1, "min", "max"),
    "compress": (0, "condition", "fill_value"),
    "conj": (),
    "conjugate": (),
    "copy": (),
    "cumprod": (),
    "cumsum": (),
    "diagonal": (),
    "dot": (0, "b"),
    "flatten": (),
    "max": (3, 4, "initial", "where"),
    "mean": ("where",),
    "min": (3, 4, "initial", "where"),
    "nonzero": (),
    "prod": (4, 5, "initial", "where"),
    "ptp": (),
    "ravel": (),
    "repeat": (0, "repeats"),
    "reshape": (),
    "round": (),
    "searchsorted": (0, 2, "v", "sorter"),
    "sort": (),
    "squeeze": (),
    "std": ("where",),
    "sum": (4, 5, "initial", "where"),
    "swapaxes": (),
    "take": (0, "indices"),
    "trace": (),
    "transpose": (),
    "var": ("where",),
    "view": (),
}
"""Methods, with the positions and names of their array arguments, for which scalars are also arguments of the program.
All other arguments are constants of the program.
"""


OF_KEYS = {"__contains__", "copy", "flatten", "ravel", "reshape", "squeeze", "swapaxes", "take", "transpose", "T"}
"""Methods and properties of arrays of typed PRNG keys outside of traces. JAX raises for all others."""


class _MethodCall(NamedTuple):
    """Call of a method; `arrays` are the positions and names of its array arguments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arrays: tuple[int | str, ...]


def call_method(name: str, array: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of `array.name(*args, **kwargs)`, or the property `name`."""

    def in_process() -> Any:
        found = getattr(here(array), name)
        if not callable(found):
            return found
        return found(*map(here, args), **{key: here(value) for key, value in kwargs.items()})

    if is_for_here(array, *args, *kwargs.values()) or (is_key(array.spec) and name not in OF_KEYS):
        return in_process()
    try:
        call = _sized(_MethodCall(name, args, kwargs, METHODS.get(name, ())), array)
        given = [_argument(value, n in call.arrays) for n, value in enumerate(call.args)]
        named = {key: _argument(value, key in call.arrays) for key, value in call.kwargs.items()}
    except Exception:
        pass  # most often a mistake, which JAX reports, not as one that came while another was handled
    else:
        return on_daemon(_call, call.name.strip("_"), call.name, array, given, named, in_process=in_process)
    return in_process()


def _argument(value: Any, is_input: bool) -> Any:
    if not is_input:
        return constant(value)
    return value if isinstance(value, (int, float, complex)) else argument(value)


def _call(name: str, array: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a method of an array, or read a property. Traced on the daemon."""
    found = getattr(array, name)
    return found(*read(args), **{key: read(value) for key, value in kwargs.items()}) if callable(found) else found


# ---- methods whose result shape depends on values: the size is computed first, fetching as little as possible


def _sized(call: _MethodCall, array: Any) -> _MethodCall:
    """Return an equivalent call that JAX can trace.

    Raises:
        TypeError, ValueError, IndexError: the arguments are invalid; the caller lets JAX report the mistake.
    """
    return _SIZED[call.name](array, *call.args, **call.kwargs) if call.name in _SIZED else call


def _nonzero(array: Any, *, size: int | None = None, fill_value: Any = None) -> _MethodCall:
    if size is None:
        if not array.shape:
            raise ValueError("a scalar has no positions")
        size = int((array if array.dtype == bool else array != 0).sum())
    return _MethodCall("nonzero", (), {"size": size, "fill_value": fill_value}, ())


def _compress(array: Any, condition: Any, axis: Any = None, **options: Any) -> _MethodCall:
    if options.get("size") is not None:
        return _MethodCall("compress", (condition,), {"axis": axis, **options}, (0,))
    if not is_array(condition) or options:
        raise TypeError("no condition")
    chosen = np.asarray(condition).astype(bool)
    if chosen.ndim != 1 or chosen[_length(array, axis) :].any():
        raise ValueError("the condition is for another array")
    return _MethodCall("take", (np.nonzero(chosen)[0],), {"axis": axis}, (0,))


def _repeat(array: Any, repeats: Any, axis: Any = None, **options: Any) -> _MethodCall:
    if not is_array(repeats) or np.ndim(repeats) == 0:
        return _MethodCall("repeat", (repeats,), {"axis": axis, **options}, ())
    if options.get("total_repeat_length") is None:
        if not array.shape:
            raise ValueError("a scalar is repeated by an array")
        options["total_repeat_length"] = int(np.broadcast_to(np.ravel(repeats), [_length(array, axis)]).sum())
    return _MethodCall("repeat", (repeats,), {"axis": axis, **options}, (0,))


def _choose(array: Any, choices: Any, out: Any = None, mode: str = "raise") -> _MethodCall:
    if mode == "raise":
        chosen = np.asarray(array)
        if chosen.dtype.kind not in "iu" or not ((chosen >= 0) & (chosen < len(choices))).all():
            raise ValueError("there is no such choice")
        mode = "clip"
    return _MethodCall("choose", (choices,), {"out": out, "mode": mode}, (0,))


def _length(array: Any, axis: Any) -> int:
    length: int = array.size if axis is None else array.shape[operator.index(axis)]
    return length


_SIZED: dict[str, Callable[..., _MethodCall]] = {
    "choose": _choose,
    "compress": _compress,
    "nonzero": _nonzero,
    "repeat": _repeat,
}
