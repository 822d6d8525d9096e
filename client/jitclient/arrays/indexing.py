"""Indexing by `array[index]` and `array.at[index]`, with positions as arguments of the program, not constants.

One program serves `array[i]` for every `i`, and one `array[i : i + 32]`: sizes and steps are constants of the program,
starts are arguments.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jitclient.arrays.dispatch import (
    add_method,
    argument,
    constant,
    exact,
    here,
    is_array,
    is_for_here,
    made,
    on_daemon,
    read,
)
from jitclient.core.tracebacks import api_boundaries

_INT32 = range(-(2**31), 2**31)


class Axis(NamedTuple):
    """Part of one axis that an index selects. If it `moves`, it is not the whole axis, and its start is an argument."""

    size: int
    step: int
    backwards: bool
    dropped: bool
    moves: bool


class IndexPlan(NamedTuple):
    """Part of each axis that a basic index selects, and the positions where it adds axes of length one."""

    axes: tuple[Axis, ...]
    added: tuple[int, ...]

    def plain(self) -> tuple[Any, ...]:
        """Return the plan as tuples, which can be a constant of a program."""
        return tuple(map(tuple, self.axes)), self.added

    @property
    def takes_all(self) -> bool:
        """Whether the result is the array itself."""
        return not self.added and not any(axis.moves or axis.backwards or axis.dropped for axis in self.axes)


def basic(index: Any, shape: Sequence[int]) -> tuple[IndexPlan, list[int]] | None:
    """Return the plan and starts of an index of integers, slices, None and `...`; None for other or invalid indices."""
    if max(shape, default=0) not in _INT32:
        return None
    items = _filled(index if type(index) is tuple else (index,), len(shape))
    if items is None:
        return None
    axes: list[Axis] = []
    starts: list[int] = []
    added: list[int] = []
    lengths = iter(shape)
    for item in items:
        if item is None:
            added.append(len(added) + sum(not axis.dropped for axis in axes))
            continue
        found = _axis(item, next(lengths))
        if found is None:
            return None
        axis, start = found
        axes.append(axis)
        starts += [start] if axis.moves else []
    return IndexPlan(tuple(axes), tuple(added)), starts


def take(plan: tuple[Any, ...], array: Any, starts: Any) -> Any:
    """Select a plan's part of an array. Traced on the daemon."""
    from jax import lax

    axes, added = tuple(Axis(*axis) for axis in plan[0]), plan[1]
    given = iter(range(len(axes)))
    firsts = [starts[next(given)] if axis.moves else np.int32(0) for axis in axes]
    extents = [(axis.size - 1) * axis.step + 1 if axis.size else 0 for axis in axes]
    if any(axis.moves for axis in axes):
        array = lax.dynamic_slice(array, firsts, extents)
    if any(axis.step > 1 for axis in axes):
        array = lax.slice(array, [0] * array.ndim, array.shape, [axis.step for axis in axes])
    array = lax.rev(array, [n for n, axis in enumerate(axes) if axis.backwards])
    array = lax.squeeze(array, [n for n, axis in enumerate(axes) if axis.dropped])
    return lax.expand_dims(array, added)


def argument_of(index: Any, shape: Sequence[int]) -> Any:
    """Return any index as an argument. Masks are fetched, because they decide the shape of the result.

    Raises:
        IndexError: a mask does not fit.
        TypeError: the index is invalid.
    """
    items = list(index) if type(index) is tuple else [index]
    given: list[Any] = []
    for item, axis in zip(items, _first_axes(items, len(shape)), strict=True):
        if _is_mask(item):
            given += _chosen(np.asarray(item), shape[axis : axis + item.ndim])
        else:
            given.append(_argument_of_item(item, shape[axis : axis + 1]))
    return given[0] if type(index) is not tuple and len(given) == 1 else tuple(given)


# ---- basic indices


def _filled(items: tuple[Any, ...], ndim: int) -> list[Any] | None:
    """Return the items with full slices for `...` and missing axes; None if they are not a basic index."""
    if not all(item is None or item is Ellipsis or isinstance(item, slice) or _is_integer(item) for item in items):
        return None
    missing = ndim - sum(item is not None and item is not Ellipsis for item in items)
    dots = [n for n, item in enumerate(items) if item is Ellipsis]
    if missing < 0 or len(dots) > 1:
        return None
    at = dots[0] if dots else len(items)
    return [*items[:at], *[slice(None)] * missing, *items[at + 1 :]]


def _axis(item: Any, length: int) -> tuple[Axis, int] | None:
    if not isinstance(item, slice):
        start = operator.index(item)
        if start not in _INT32:
            return None
        start += length if start < 0 else 0
        # As in JAX, positions are clamped to the axis.
        one = Axis(1, 1, backwards=False, dropped=True, moves=length > 1)
        return (one, min(max(start, 0), length - 1)) if length else None
    try:
        numbers = range(*item.indices(length))
    except (TypeError, ValueError):
        return None
    backwards = numbers.step < 0
    numbers = numbers[::-1] if backwards else numbers
    size, step = len(numbers), numbers.step if len(numbers) > 1 else 1
    axis = Axis(size, step, backwards and size > 1, dropped=False, moves=size < length)
    return axis, numbers.start if size else 0


def _is_integer(item: Any) -> bool:
    return isinstance(item, (int, np.integer)) and not isinstance(item, bool)


# ---- other indices


def _argument_of_item(item: Any, length: Sequence[int]) -> Any:
    if _is_integer(item):
        number = operator.index(item)
        return number if number in _INT32 and length != (0,) else exact(number)
    # Only a scalar is left here, because masks were handled before.
    if is_array(item) and item.dtype == bool:
        return exact(bool(item))
    if isinstance(item, slice) and length and length[0] in _INT32:
        found = _axis(item, length[0])
        if found is not None and found[0].moves and found[0].step == 1 and not found[0].backwards:
            return made("window", np.int32(found[1]), exact(found[0].size))
    return argument(item)


def _is_mask(item: Any) -> bool:
    return is_array(item) and item.ndim > 0 and item.dtype == bool


def _chosen(mask: Any, expected: Sequence[int]) -> tuple[Any, ...]:
    if mask.shape != tuple(expected):
        raise IndexError(f"a mask of shape {mask.shape} chooses among {tuple(expected)}")
    return np.nonzero(mask)


def _first_axes(items: list[Any], ndim: int) -> list[int]:
    """Return the axis at which each item begins."""
    consumed = [_consumed(item) for item in items]
    after = ndim - sum(consumed)
    axes, axis = [], 0
    for item, count in zip(items, consumed, strict=True):
        axes.append(axis)
        axis += after if item is Ellipsis else count
    return axes


def _consumed(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, (bool, np.bool_)):
        return 0
    if is_array(item) and item.dtype == bool:
        return int(item.ndim)
    return 1


UPDATES = ("get", "set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max", "apply")


@api_boundaries()
class At:
    """Counterpart of `jax.Array.at`: the attribute `array.at`."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> "AtIndex":
        return AtIndex(self.array, index)

    def __repr__(self) -> str:
        return f"At({self.array!r})"


@api_boundaries()
class AtIndex:
    """Position `array.at[index]`, whose methods return an updated copy of the array."""

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"AtIndex({self.array!r}, {self.index!r})"


def _update(name: str, place: AtIndex, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    array, index = place.array, place.index

    def in_process() -> Any:
        there = here(array).at[here(index)]
        return getattr(there, name)(*map(here, args), **{key: here(value) for key, value in kwargs.items()})

    if is_for_here(array, *(index if type(index) is tuple else (index,)), *args, *kwargs.values()):
        return in_process()
    try:
        where = argument_of(index, array.shape)
        given = [_value(array.dtype, value) for value in args]
        named = {key: _value(array.dtype, v) if key == "values" else constant(v) for key, v in kwargs.items()}
    except Exception:
        pass  # most often a mistake, which JAX reports, not as one that came while another was handled
    else:
        return on_daemon(_call, f"at_{name}", name, array, where, given, named, in_process=in_process)
    return in_process()


def _call(name: str, array: Any, index: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a method of `array.at[index]`. Traced on the daemon."""
    update = getattr(array.at[read(index)], name)
    return update(*read(args), **{key: read(value) for key, value in kwargs.items()})


def _value(dtype: Any, value: Any) -> Any:
    if type(value) is int and np.issubdtype(dtype, np.integer) and value in _range_of(dtype):
        # JAX converts a Python number to the array's dtype, but cannot recognise a number in a program's argument.
        return np.asarray(value, dtype)
    return value if isinstance(value, (int, float, complex)) else argument(value)


@functools.cache
def _range_of(dtype: Any) -> range:
    import ml_dtypes

    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return range(int(info.min), int(info.max) + 1)


for _name in UPDATES:
    add_method(AtIndex, _name, _update)
