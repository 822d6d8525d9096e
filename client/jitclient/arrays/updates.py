"""`array.at[index].set(value)` and the other updates."""

import functools
from typing import Any

import numpy as np

from jitclient.arrays import indexing
from jitclient.arrays.dispatch import add_method, argument, constant, here, is_for_here, on_daemon, read

UPDATES = ("get", "set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max", "apply")


class At:
    """`array.at`, as `jax.Array.at`."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> "AtIndex":
        return AtIndex(self.array, index)

    def __repr__(self) -> str:
        return f"At({self.array!r})"


class AtIndex:
    """`array.at[index]`, whose methods return an updated copy of the array."""

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
        where = indexing.argument_of(index, array.shape)
        given = [_value(array.dtype, value) for value in args]
        named = {key: _value(array.dtype, v) if key == "values" else constant(v) for key, v in kwargs.items()}
    except Exception:  # most often a mistake, which JAX reports
        return in_process()
    return on_daemon(_call, f"at_{name}", name, array, where, given, named, in_process=in_process)


def _call(name: str, array: Any, index: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A method of `array.at[index]`. Traced on the daemon."""
    update = getattr(array.at[read(index)], name)
    return update(*read(args), **{key: read(value) for key, value in kwargs.items()})


def _value(dtype: Any, value: Any) -> Any:
    if type(value) is int and np.issubdtype(dtype, np.integer) and value in _range_of(dtype):
        return np.asarray(value, dtype)  # as JAX does with a number, which it cannot recognise in an argument
    return value if isinstance(value, (int, float, complex)) else argument(value)


@functools.cache
def _range_of(dtype: Any) -> range:
    import ml_dtypes

    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return range(int(info.min), int(info.max) + 1)


for _name in UPDATES:
    add_method(AtIndex, _name, _update)
