"""How arrays are sent: small ones inside the message; larger ones attached, as raw bytes or in shared memory."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from jitclient.errors import ProtocolError
from jitclient.wire.messages import INLINE_BYTES, MAX_FRAME_BYTES, Attached, Failure, Spec

HostArray = npt.NDArray[Any]

ALIGNMENT = 64  # XLA's CPU client uses host memory without a copy only at such addresses
KEY_PREFIX = "key<"
KEY_WORDS = {"key<fry>": 2, "key<rbg>": 4, "key<urbg>": 4}
"""32-bit words of one typed PRNG key, by dtype."""


def dtype_named(name: str) -> np.dtype[Any]:
    """The numpy dtype of that name, including those of ml_dtypes.

    Raises:
        ProtocolError: there is none.
    """
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # late, as most programs use none of its types

        found = getattr(ml_dtypes, name, None)
        if found is None:
            raise ProtocolError(f"no such dtype: {name!r:.40}") from None
        dtype: np.dtype[Any] = np.dtype(found)
        return dtype


def is_key(spec: Spec) -> bool:
    """Whether the array holds typed PRNG keys."""
    return spec.dtype.startswith(KEY_PREFIX)


@functools.lru_cache(maxsize=4096)
def host_form(spec: Spec) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of the array's bytes. Typed keys are sent as their data."""
    if not is_key(spec):
        return spec.shape, dtype_named(spec.dtype)
    if spec.dtype not in KEY_WORDS:
        raise ProtocolError(f"no such kind of PRNG key: {spec.dtype!r:.40}")
    return (*spec.shape, KEY_WORDS[spec.dtype]), np.dtype("uint32")


@functools.lru_cache(maxsize=4096)
def nbytes_of(spec: Spec) -> int:
    """Bytes that the array takes on the wire."""
    shape, dtype = host_form(spec)
    return math.prod(shape) * dtype.itemsize


def inline_most(count: int) -> int:
    """The most bytes that each of `count` arrays in one message may have without being attached."""
    return min(INLINE_BYTES, MAX_FRAME_BYTES // 2 // max(count, 1))


def pack(array: HostArray, attachments: list[HostArray], most: int = INLINE_BYTES) -> bytes | Attached:
    """Encode an array for a message. One of more than `most` bytes is added to `attachments`."""
    if array.nbytes <= most:
        return array.tobytes()
    attachments.append(array)
    return Attached(array.nbytes)


def raw_bytes(array: HostArray) -> memoryview:
    """The bytes of an array, in order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def unpack(value: bytes, spec: Spec) -> HostArray:
    """Decode an array from a message, read-only."""
    shape, dtype = host_form(spec)
    if len(value) != math.prod(shape) * dtype.itemsize:
        raise ProtocolError(f"{len(value):,} bytes are no {spec.dtype}{list(spec.shape)}")
    return np.frombuffer(value, dtype).reshape(shape)


def allocate(nbytes: int) -> HostArray:
    """Memory for an array that is read off the wire, aligned so that XLA can use it without a copy."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def shaped(raw: HostArray, spec: Spec) -> HostArray:
    """View bytes read off the wire as an array."""
    shape, dtype = host_form(spec)
    if raw.nbytes != math.prod(shape) * dtype.itemsize:
        raise ProtocolError(f"{raw.nbytes:,} bytes are no {spec.dtype}{list(spec.shape)}")
    return raw.view(dtype).reshape(shape)


def unpack_value(
    read: Callable[[int], HostArray], value: bytes | Attached | Failure, spec: Spec
) -> HostArray | Failure:
    """The array in an answer, read-only, or its failure; `read` reads the attachments."""
    if isinstance(value, Failure):
        return value
    if isinstance(value, bytes):
        return unpack(value, spec)
    array = shaped(read(value.nbytes), spec)
    array.flags.writeable = False
    return array
