"""Every form of index on arrays with axes of length 0, 1 and 2: `array[index]` and `array.at[index]`.

Compared with `jax.Array` are shape, dtype, weak type, the bits of the value, and the classes of errors.
"""

import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jitclient

NAME = "jax.Array, indexed"
SHAPES = ((), (0,), (1,), (2,), (1, 1), (1, 2), (2, 1), (2, 2), (0, 1), (1, 0), (2, 0), (1, 2, 1))
SHAPES_OF_ALL_SLICES = ((0,), (1,), (2,), (1, 2), (2, 1))

_BOUNDS = ("None", "0", "1", "-1", "5", "-9")
_STEPS = ("None", "1", "2", "-1", "-2")
SLICES = tuple(f"slice({', '.join(given)})" for given in itertools.product(_BOUNDS, _BOUNDS, _STEPS))
_FEW_BOUNDS = ("None", "1", "1, None", "-1, None", "5, 9", "None, None, 2", "None, None, -1", "0, 0")
FEW_SLICES = tuple(f"slice({given})" for given in _FEW_BOUNDS)

INTEGERS = (
    *("0", "1", "-1", "2", "5", "-9", "2**31", "2**40", "-2**40", "np.int64(0)", "np.uint8(1)", "np.int32(-1)"),
    *("jnp.int32(0)", "np.array(0)", "zero", "np.array(-1, np.int8)"),
)
ARRAYS = (
    *("np.array([0])", "np.array([0, -1, 5])", "np.array([[0], [1]])", "np.array([], int)", "np.zeros((0, 2), int)"),
    *("jnp.array([0])", "zeros", "np.array([1], np.uint8)", "zeros[:0]"),
)
MASKS = (
    *("True", "False", "jnp.array(True)", "yes", "np.array(False)", "whole", "none", "first"),
    *("row", "np.asarray(row)", "np.asarray(whole)", "np.ones(3, bool)", "np.ones((9, 9), bool)"),
)
OTHERS = ("...", "None", "()", "(...,)", "(None, None)", "(None, ...)")
_MIXED = (
    *("0,", "0, 0", "0, 0, 0", "0, slice(None)", "slice(None), 0", "..., 0", "0, ...", "None, 0", "0, None"),
    *("slice(None), None", "slice(1), slice(1)", "slice(None, None, -1), slice(None, None, 2)", "..., slice(1)"),
    *("0, ..., 0", "..., None", "None, slice(1), None", "zeros, slice(None)", "slice(None), zeros", "zeros, zeros"),
    *("zeros, None, zeros", "0, zeros", "zeros, 0", "zero, slice(None)", "True, 0", "False, 0", "0, True", "yes, 0"),
    *("row, 0", "row, slice(None)", "slice(None), row", "row, zeros", "True, zeros", "..., row", "row, None", "0, row"),
    *("np.array([[0]]), zeros", "zeros, ..., zeros", "slice(1, None), -1", "np.int8(0), jnp.int32(0)", "5, -9"),
)
MIXES = tuple(f"({mix})" for mix in _MIXED)
WRONG = (
    *("'a'", "0.0", "1.5", "np.float32(0)", "half", "[0]", "[]", "[True]", "([0], 0)", "(..., ...)", "object()", "{}"),
    *("slice('a')", "slice(1.5)", "slice(None, None, 0)", "np.array([0.5])", "(0, 'a')", "1j", "slice(half)"),
)
USES = ("array[{}]", "array.at[{}].set(3)", "array.at[{}].add(array.sum())", "array.at[{}].get()")


class Difference(NamedTuple):
    """An expression, what it gives with arrays of JAX's, and what with the daemon's."""

    call: str
    jax: str
    jitserver: str


def expressions(uses: Iterable[str], slices: Iterable[str]) -> Iterator[str]:
    """Every form of index in each of its uses, with these slices."""
    indices = (*INTEGERS, *ARRAYS, *MASKS, *OTHERS, *MIXES, *WRONG, *slices)
    return (use.format(index) for use, index in itertools.product(uses, indices))


def all_differences() -> Iterator[Difference | None]:
    """Yield the difference in each form of index, in each use, on each shape; None where there is none."""
    for shape in SHAPES:
        slices = SLICES if shape in SHAPES_OF_ALL_SLICES else FEW_SLICES
        yield from differences(shape, expressions(USES, slices))


def differences(shape: tuple[int, ...], written: Iterable[str]) -> Iterator[Difference | None]:
    """Yield the difference in each expression on an array of that shape; None where there is none."""
    theirs = _names(shape)
    ours = jitclient.device_put(theirs)
    modules = {"np": np, "jnp": jnp}
    for expression in written:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected, found = (outcome(expression, {**modules, **names}) for names in (theirs, ours))
        yield None if expected == found else Difference(f"{expression} of shape {shape}", expected, found)


def outcome(expression: str, names: dict[str, Any]) -> str:
    """Return the outcome of an expression, in one line."""
    try:
        found = eval(expression, names)
    except Exception as error:
        return f"raises {type(error).__name__}"
    assert isinstance(found, jax.Array)
    value = np.asarray(found)
    weak = " weak" if found.weak_type else ""
    return f"{found.dtype}{list(found.shape)}{weak} {value.tobytes().hex()} {value.tolist()}"


def _names(shape: tuple[int, ...]) -> dict[str, Any]:
    """The array, and the arrays that indices are made of."""
    array = jnp.arange(1.0, 1 + np.prod(shape, dtype=int)).reshape(shape)
    return {
        "array": array,
        "zero": jnp.int32(0),
        "zeros": jnp.zeros(2, jnp.int32),
        "half": jnp.float32(0.5),
        "yes": jnp.array(True),
        "whole": jnp.ones(shape, bool),
        "none": jnp.zeros(shape, bool),
        "first": array == 1,
        "row": jnp.ones(shape[:1], bool),
    }
