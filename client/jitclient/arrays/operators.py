"""The binary operators."""

import operator
from typing import Any

import numpy as np

from jitclient.arrays.dispatch import here, is_for_here, on_daemon
from jitclient.arrays.methods import call_method, is_integer
from jitclient.arrays.operands import Remote, is_array
from jitclient.local_jax import interop

NAMES = (
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


def apply(name: str, array: Any, other: Any) -> Any:
    """The result of the array's operator `name`.

    Raises:
        TypeError: the other operand is of a type that JAX refuses.
    """
    convert = getattr(other, "__jax_array__", None)
    if convert is not None:
        other = convert()
    sign, refused = _NO_OPERANDS.get(name, ("", ()))
    if type(other) in refused:
        left, right = (other, array) if name.startswith("r") else (array, other)
        raise TypeError(f"unsupported operand type(s) for {sign}: {type(left).__name__!r} and {type(right).__name__!r}")
    if not isinstance(other, (int, float, complex)) and not is_array(other) and not interop.is_tracer(other):
        return NotImplemented
    if _is_for_jax(other):
        return getattr(here(array), f"__{name}__")(other)
    if name in ("pow", "rpow") and not is_for_here(other):
        return _power(name, array, other)
    return _apply(f"__{name}__", array, other)


def _is_for_jax(other: Any) -> bool:
    """Whether the operand cannot be an argument, so that JAX in this process must handle or refuse it."""
    if isinstance(other, np.ma.MaskedArray):
        return True
    return isinstance(other, (np.ndarray, np.generic)) and other.dtype.kind in "mM"


def _apply(name: str, array: Any, other: Any) -> Any:
    if is_for_here(other):
        return getattr(here(array), name)(here(other))
    return on_daemon(_call, name.strip("_"), (name,), array, other)


def _call(name: str, array: Any, other: Any) -> Any:
    return getattr(array, name)(other)


def _power(name: str, array: Any, other: Any) -> Any:
    """As in JAX, an integer exponent is a constant, compiled to multiplications."""
    base, exponent = (array, other) if name == "pow" else (other, array)
    if not is_integer(exponent):
        return _apply(f"__{name}__", array, other)
    constant = operator.index(exponent)
    if isinstance(base, Remote):
        return call_method("__pow__", base, (constant,), {})
    return on_daemon(_raised, "pow", (constant,), base)


def _raised(exponent: int, base: Any) -> Any:
    return base**exponent
