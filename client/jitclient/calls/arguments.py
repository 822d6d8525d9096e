"""Leaves of a call's arguments: their specs, and the form in which each is sent."""

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jitclient.arrays.array import Array
from jitclient.errors import CaptureError
from jitclient.jaxside import avals, shardings
from jitclient.jaxside.interop import is_jax_array, is_process_local, is_tracer
from jitclient.jaxside.leaked_tracers import raise_leaked_error
from jitclient.session.session import Session
from jitclient.wire.array_transport import KEY_PREFIX, HostArray, inline_limit, pack
from jitclient.wire.messages import Attached, Spec

NARROWED = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
"""Narrow counterparts of the 64-bit types, used if `jax_enable_x64` is off."""

_SCALARS: dict[type, Callable[[bool], Spec]] = {
    bool: lambda x64: Spec((), "bool"),
    int: lambda x64: Spec((), "int64" if x64 else "int32", weak_type=True),
    float: lambda x64: Spec((), "float64" if x64 else "float32", weak_type=True),
    complex: lambda x64: Spec((), "complex128" if x64 else "complex64", weak_type=True),
}


class NotAnArray(TypeError):  # noqa: N818
    """Leaf that jit cannot accept as an array. `number` is its position; the caller adds its path to the message.

    Args:
        what: what it is.
        shown: the same as JAX's messages have it.
    """

    number = 0

    def __init__(self, what: str, shown: str = "") -> None:
        super().__init__(what)
        self.shown = shown or what


def spec_of(leaf: Any, x64: bool) -> Spec:
    """Return the spec of one leaf.

    Raises:
        CaptureError: jit accepts the leaf, but the leaf cannot leave this process.
        NotAnArray: jit does not accept the leaf as an array.
        ValueError: the leaf is a masked array.
    """
    kind = type(leaf)
    if kind is Array:
        return leaf.spec  # type: ignore[no-any-return]
    if kind in _SCALARS:
        return _SCALARS[kind](x64)
    if isinstance(leaf, (np.ndarray, np.generic)):
        if kind is not np.ndarray and isinstance(leaf, np.ma.MaskedArray):
            raise ValueError("numpy masked arrays are not supported: pass arr.filled(...), or the mask too")
        return _spec_of_numpy(leaf.dtype, leaf.shape, x64)
    if is_jax_array(leaf):
        weak = bool(leaf.aval.weak_type)
        return Spec(leaf.shape, dtype_name(leaf.dtype, x64=True), weak, shardings.of_array(leaf))  # never narrowed
    if is_tracer(leaf):
        raise_leaked_error(leaf)
    if hasattr(leaf, "__jax_array__"):
        return spec_of(leaf.__jax_array__(), x64)
    # Subclasses of scalars, such as the members of an IntEnum.
    for scalar, make in _SCALARS.items():
        if isinstance(leaf, scalar):
            return make(x64)
    if is_process_local(leaf):
        raise CaptureError(f"an argument is a {kind.__qualname__}, which lives in this process only")
    raise NotAnArray(kind.__qualname__, str(kind))


def specs_of(leaves: Sequence[Any], x64: bool, spec_of: Callable[[Any, bool], Spec] = spec_of) -> tuple[Spec, ...]:
    """Return the specs of all leaves of a call. Fast, because every call starts with it.

    Raises:
        NotAnArray: a leaf is not an array; `number` is its position.
    """
    specs: list[Spec] = []
    try:
        for leaf in leaves:
            kind = type(leaf)
            if kind is Array:
                specs.append(leaf.spec)
            elif kind is np.ndarray:
                specs.append(_spec_of_numpy(leaf.dtype, leaf.shape, x64))
            else:
                specs.append(spec_of(leaf, x64))
    except NotAnArray as error:
        error.number = len(specs)
        raise
    return tuple(specs)


@functools.lru_cache(maxsize=10_000)
def _spec_of_numpy(dtype: np.dtype[Any], shape: tuple[int, ...], x64: bool) -> Spec:
    if not dtype.isnative:
        raise NotAnArray(f"array of dtype {dtype.str}, which is not in native byte order")
    if dtype.names == ("float0",):
        raise CaptureError("an argument has the dtype float0, which only JAX's own derivatives have")
    return Spec(shape, dtype_name(dtype, x64))


def value_of(leaf: Any, spec: Spec) -> HostArray:
    """Return the value of one leaf, as a numpy array of its wire dtype."""
    if type(leaf) is np.ndarray:
        array = leaf
    elif spec.dtype.startswith("key<"):
        return leaf.key_data() if type(leaf) is Array else np.asarray(sys.modules["jax"].random.key_data(leaf))
    else:
        array = _as_numpy(leaf, spec)
    return array if _name_of(array.dtype) == spec.dtype else array.astype(spec.dtype)


def _as_numpy(leaf: Any, spec: Spec) -> HostArray:
    known = isinstance(leaf, (Array, bool, int, float, complex, np.ndarray, np.generic))
    if not known and hasattr(leaf, "__jax_array__"):
        leaf = leaf.__jax_array__()
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return np.asarray(int(leaf), spec.dtype)  # numpy checks the range
    return np.asarray(leaf)


@functools.lru_cache(maxsize=256)
def _name_of(dtype: np.dtype[Any]) -> str:
    # Cached, because numpy computes the name each time.
    return dtype.name


def outgoing(
    leaves: Sequence[Any], specs: Sequence[Spec], session: Session, attachments: list[HostArray]
) -> list[int | bytes | Attached]:
    """Return the leaves as they are sent: arrays on the daemon as handles, others as bytes or attachments."""
    max_inline = 0
    values: list[int | bytes | Attached] = []
    for leaf, spec in zip(leaves, specs, strict=True):
        handle = leaf.handle_in(session) if type(leaf) is Array else None
        if handle is not None:
            values.append(handle)
        else:
            max_inline = max_inline or inline_limit(len(leaves))
            values.append(pack(value_of(leaf, spec), attachments, max_inline))
    return values


def dtype_name(dtype: Any, x64: bool) -> str:
    """Return JAX's name of a dtype, narrowed unless `x64`.

    Raises:
        CaptureError: it is that of keys of the program's own random number generator.
        NotAnArray: JAX has no such dtype.
    """
    name = getattr(dtype, "name", "") or str(dtype)
    if name == "object" or name.startswith(("str", "bytes", "datetime", "timedelta")) or getattr(dtype, "fields", None):
        raise NotAnArray(f"array of dtype {name}")
    if name.startswith(KEY_PREFIX) and avals.is_key_of_program(dtype):
        raise CaptureError(f"an argument has keys of a random number generator of the program's own ({name})")
    return name if x64 else NARROWED.get(name, name)
