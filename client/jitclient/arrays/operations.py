"""Operations on an array that run on the daemon, and return arrays there.

They work with and without jax in this process. JAX executes them on the daemon, so that values, dtypes, weak types and
errors are its own.
"""

import functools
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from jitclient.arrays import indexing
from jitclient.arrays.dispatch import (
    Remote,
    add_method,
    here,
    is_array,
    is_for_here,
    is_integer,
    on_daemon,
    read,
)
from jitclient.arrays.indexing import At
from jitclient.arrays.methods import METHODS, PROPERTIES, call_method
from jitclient.core.tracebacks import api_boundaries, hide_machinery
from jitclient.jaxside import interop

_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "matmul", "pow", "and", "or", "xor", "lshift"),
    *("rshift", "radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rmatmul", "rpow", "rand", "ror"),
    *("rxor", "rlshift", "rrshift", "eq", "ne", "lt", "le", "gt", "ge"),
)

_NO_OPERANDS: dict[str, tuple[str, tuple[type, ...]]] = {
    **dict.fromkeys(("add", "radd"), ("+", (tuple, list))),
    **dict.fromkeys(("mul", "rmul"), ("*", (tuple, list))),
    **dict.fromkeys(("eq", "ne"), ("==", (tuple, list, dict, set))),
}
"""Operand types that JAX refuses: otherwise Python would try the other operand's method."""

_UNARY = ("neg", "pos", "abs", "invert", "round")
_ROWS_AT_ONCE = 100


@api_boundaries()
class Operations(Remote):
    """Methods and operators from the tables, and those built on them."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        def in_process() -> Any:
            return here(self)[here(index)]

        if is_for_here(*(index if type(index) is tuple else (index,))):
            return in_process()
        found = indexing.basic(index, self.shape)
        if found is not None:
            plan, starts = found
            if plan.takes_all:
                return self
            variant, firsts = plan.plain(), np.asarray(starts, np.int32)
            return on_daemon(indexing.take, "getitem", variant, self, firsts, in_process=in_process, variant=variant)
        try:
            given = indexing.argument_of(index, self.shape)
        except Exception:
            pass  # most often a mistake, which JAX reports, not as one that came while another was handled
        else:
            return on_daemon(_item, "getitem", None, self, given, in_process=in_process)
        return in_process()

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return iter(here(self)) if is_for_here() else self._rows()

    def _rows(self) -> Iterator[Any]:
        try:
            for start in range(0, self.shape[0], _ROWS_AT_ONCE):
                rows = self[start : start + _ROWS_AT_ONCE]
                yield from on_daemon(_unstack, "unstack", None, rows, in_process=functools.partial(_unstack_here, rows))
        except BaseException as error:
            hide_machinery(error)
            raise

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "JAX arrays are immutable and do not support in-place item assignment. "
            "Instead of x[idx] = y, use x = x.at[idx].set(y) or another .at[] method: "
            "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html"
        )

    def __contains__(self, other: Any) -> bool:
        return bool(call_method("__contains__", self, (other,), {}))

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    @property
    def at(self) -> Any:
        """Updated copies of the array, as `jax.Array.at` makes them: `array.at[index].set(value)`."""
        return At(self)


def _item(array: Any, index: Any) -> Any:
    return array[read(index)]


def _unstack(array: Any) -> Any:
    from jax import numpy as jnp

    return jnp.unstack(array)


def _unstack_here(array: Any) -> Any:
    return _unstack(here(array))


def _operator(name: str, array: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _binary(name.strip("_"), array, *args, **kwargs)


def _binary(name: str, array: Any, other: Any) -> Any:
    convert = getattr(other, "__jax_array__", None)
    if convert is not None:
        other = convert()
    sign, refused = _NO_OPERANDS.get(name, ("", ()))
    if type(other) in refused:
        left, right = (other, array) if name.startswith("r") else (array, other)
        raise TypeError(f"unsupported operand type(s) for {sign}: {type(left).__name__!r} and {type(right).__name__!r}")
    if not isinstance(other, (int, float, complex)) and not is_array(other) and not interop.is_tracer(other):
        return NotImplemented
    is_refused = isinstance(other, (np.ndarray, np.generic)) and other.dtype.kind in "mM"
    if is_refused or isinstance(other, np.ma.MaskedArray):  # JAX reports the error
        return getattr(here(array), f"__{name}__")(other)
    if name in ("pow", "rpow") and not is_for_here(other):
        return _power(name, array, other)
    return _apply(f"__{name}__", array, other)


def _apply(name: str, array: Any, other: Any) -> Any:
    def in_process() -> Any:
        return getattr(here(array), name)(here(other))

    if is_for_here(other):
        return in_process()
    return on_daemon(_call, name.strip("_"), name, array, other, in_process=in_process)


def _call(name: str, array: Any, other: Any) -> Any:
    return getattr(array, name)(other)


def _power(name: str, array: Any, other: Any) -> Any:
    """Return a power. As in JAX, an integer exponent is a constant, compiled to multiplications."""
    base, exponent = (array, other) if name == "pow" else (other, array)
    if not is_integer(exponent):
        return _apply(f"__{name}__", array, other)
    if isinstance(base, Remote):
        return call_method("__pow__", base, (operator.index(exponent),), {})
    constant = operator.index(exponent)
    return on_daemon(_raised, "pow", constant, base, in_process=lambda: _raised(constant, here(base)))


def _raised(exponent: int, base: Any) -> Any:
    return base**exponent


for _name in METHODS:
    if _name not in vars(Operations):
        add_method(Operations, _name, call_method)
for _name in _UNARY:
    add_method(Operations, f"__{_name}__", call_method)
for _name in _BINARY:
    add_method(Operations, f"__{_name}__", _operator)
for _name in PROPERTIES:
    add_method(Operations, _name, call_method, property)
