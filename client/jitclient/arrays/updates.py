"""`array.at[index].set(value)` and the other updates."""

import functools
from typing import Any

import numpy as np

from jitclient.arrays import indexing
from jitclient.arrays.dispatch import add_method, here, is_for_here, run
from jitclient.arrays.methods import template_of_constant
from jitclient.arrays.operands import Operands, Template, read

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
    operands = Operands([array])
    try:
        where = indexing.template_of(index, array.shape, operands)
    except IndexError:
        return in_process()  # JAX raises its own error
    template = (
        where,
        ("tuple", tuple(_value(operands, array.dtype, value) for value in args)),
        ("dict", tuple((key, _option(operands, array.dtype, key, value)) for key, value in kwargs.items())),
    )
    return run(_call, f"at_{name}", (name, ("tuple", template)), operands, in_process)


def _call(name: str, template: Template, *operands: Any) -> Any:
    """A method of `at[index]` of the first operand. Traced on the daemon."""
    index, args, kwargs = read(template, operands)
    return getattr(operands[0].at[index], name)(*args, **kwargs)


def _option(operands: Operands, dtype: Any, key: str, value: Any) -> Template:
    return _value(operands, dtype, value) if key == "values" else template_of_constant(value)


def _value(operands: Operands, dtype: Any, value: Any) -> Template:
    if type(value) is int and np.issubdtype(dtype, np.integer) and value in _range_of(dtype):
        value = np.asarray(value, dtype)  # as JAX does with a number, which it cannot recognise in an argument
    return operands.operand(value) if isinstance(value, (int, float, complex)) else operands.template(value)


@functools.cache
def _range_of(dtype: Any) -> range:
    import ml_dtypes

    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return range(int(info.min), int(info.max) + 1)


for _name in UPDATES:
    add_method(AtIndex, _name, _update)
