"""Encoding of arrays on the wire: small ones inside the message; large ones as raw bytes or in shared memory."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from jitclient.errors import ProtocolError
from jitclient.wire.messages import INLINE_BYTES, MAX_FRAME_BYTES, Attached, Failure, Spec

HostArray = npt.NDArray[Any]

# XLA's CPU client uses host memory without a copy only at multiples of this address.
ALIGNMENT = 64
KEY_PREFIX = "key<"
KEY_WORDS = {"key<fry>": 2, "key<rbg>": 4, "key<urbg>": 4}
"""Number of 32-bit words in one typed PRNG key, by dtype."""


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of that name, including those of ml_dtypes.

    Raises:
        ProtocolError: the name is unknown.
    """
    try:
        return np.dtype(name)
    except TypeError:
        # Imported late, because most programs use none of its types.
        import ml_dtypes

        found = getattr(ml_dtypes, name, None)
        if found is None:
            raise ProtocolError(f"no such dtype: {name!r:.40}") from None
        dtype: np.dtype[Any] = np.dtype(found)
        return dtype


def is_key(spec: Spec) -> bool:
    """Return whether the array holds typed PRNG keys."""
    return spec.dtype.startswith(KEY_PREFIX)


@functools.lru_cache(maxsize=4096)
def host_form(spec: Spec) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype of the array's bytes. Typed keys are sent as their data.

    Raises:
        ProtocolError: the dtype is unknown.
    """
    if not is_key(spec):
        return spec.shape, dtype_named(spec.dtype)
    if spec.dtype not in KEY_WORDS:
        raise ProtocolError(f"no such kind of PRNG key: {spec.dtype!r:.40}")
    return (*spec.shape, KEY_WORDS[spec.dtype]), np.dtype("uint32")


@functools.lru_cache(maxsize=4096)
def nbytes_of(spec: Spec) -> int:
    """Return the number of bytes that the array takes on the wire."""
    shape, dtype = host_form(spec)
    return math.prod(shape) * dtype.itemsize


def inline_limit(count: int) -> int:
    """Return the maximum number of bytes of an array that is inlined in a message with `count` arrays."""
    return min(INLINE_BYTES, MAX_FRAME_BYTES // 2 // max(count, 1))


def pack(array: HostArray, attachments: list[HostArray], max_inline: int = INLINE_BYTES) -> bytes | Attached:
    """Encode an array for a message. Append an array of more than `max_inline` bytes to `attachments`."""
    if array.nbytes <= max_inline:
        return array.tobytes()
    attachments.append(array)
    return Attached(array.nbytes)


def raw_bytes(array: HostArray) -> memoryview:
    """Return the bytes of an array, in row-major order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def unpack(value: bytes, spec: Spec) -> HostArray:
    """Decode an array from a message, read-only.

    Raises:
        ProtocolError: the number of bytes does not fit the spec.
    """
    shape, dtype = host_form(spec)
    if len(value) != math.prod(shape) * dtype.itemsize:
        raise ProtocolError(f"{len(value):,} bytes do not fit {spec.dtype}{list(spec.shape)}")
    return np.frombuffer(value, dtype).reshape(shape)


def allocate(nbytes: int) -> HostArray:
    """Allocate memory for an array that is read off the wire, aligned so that XLA can use it without a copy."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def shaped(raw: HostArray, spec: Spec) -> HostArray:
    """View bytes that were read off the wire as an array.

    Raises:
        ProtocolError: the number of bytes does not fit the spec.
    """
    shape, dtype = host_form(spec)
    if raw.nbytes != math.prod(shape) * dtype.itemsize:
        raise ProtocolError(f"{raw.nbytes:,} bytes do not fit {spec.dtype}{list(spec.shape)}")
    return raw.view(dtype).reshape(shape)


def unpack_value(
    read: Callable[[int], HostArray], value: bytes | Attached | Failure, spec: Spec
) -> HostArray | Failure:
    """Return the array in an answer, read-only, or its failure; `read` reads the attachments."""
    if isinstance(value, Failure):
        return value
    if isinstance(value, bytes):
        return unpack(value, spec)
    array = shaped(read(value.nbytes), spec)
    array.flags.writeable = False
    return array
