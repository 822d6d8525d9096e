"""Arrays to disk and back as they are: dtype, weak type, keys, and where they lie. Many can be in one file."""

import contextlib
import math
import os
import time
import zlib
from typing import Any, BinaryIO

import jax
import msgspec
import numpy as np

from jitclient.local_jax import interop, shardings
from jitclient.wire.arrays import allocate, nbytes_of, raw_bytes
from jitclient.wire.messages import Spec
from jitserver.engine import arrays

_STEP_BYTES = 16 << 20
_POLL_SECONDS = 0.01


class Damaged(Exception):  # noqa: N818
    """A file does not hold what was written to it."""


class Stored(msgspec.Struct, array_like=True, frozen=True):
    """An array in a file. `spec` says where it lies, too; one that is not `committed` there may be moved by its users,
    as JAX does with an array that nobody placed.
    """

    spec: Spec
    committed: bool
    start: int
    checksum: int


def write(file: BinaryIO, array: jax.Array, deadline: float = math.inf) -> Stored:
    """Appends an array to a file, once it is computed; gives up at `deadline`, by `time.monotonic`.

    JAX keeps the copy in host memory that this makes of an array on an accelerator for as long as the array lives.

    Raises:
        OSError: there is no room, or (TimeoutError) no time. The file is as long as before, if that can be had.
        CaptureError: its sharding has no form that can be written.
        RuntimeError: it was deleted, or what computes it failed.
    """
    if array.is_deleted():  # JAX ends the process where such a one is asked whether it is ready
        raise RuntimeError("Array has been deleted.")
    spec = _spec_of(array)
    dtype: Any = array.dtype
    plain: Any = array if isinstance(dtype, np.dtype) else jax.random.key_data(array)
    while not plain.is_ready():
        _check(deadline)
        time.sleep(_POLL_SECONDS)
    start = file.seek(0, os.SEEK_END)
    data, checksum = raw_bytes(np.asarray(plain)), 0
    try:
        for begin in range(0, len(data), _STEP_BYTES):
            _check(deadline)
            part = data[begin : begin + _STEP_BYTES]
            write_all(file, part)
            checksum = zlib.crc32(part, checksum)
    except BaseException:
        with contextlib.suppress(OSError):
            file.truncate(start)
        raise
    return Stored(spec, array.committed, start, checksum)


def read(file: BinaryIO, stored: Stored) -> jax.Array:
    """The array that was written there.

    Raises:
        Damaged: these are not its bytes.
        Incompatible: there are fewer devices than it lies on.
    """
    raw = allocate(nbytes_of(stored.spec))
    file.seek(stored.start)
    count = file.readinto(raw.data)  # type: ignore[attr-defined]
    if count != raw.nbytes or zlib.crc32(raw.data) != stored.checksum:
        raise Damaged(f"the bytes of {stored.spec.dtype}{list(stored.spec.shape)} are not those that were written")
    if stored.committed:
        array = arrays.resident(raw, stored.spec)
    else:
        [device] = shardings.to_jax(stored.spec.sharding).device_set
        with jax.default_device(device):
            array = arrays.resident(raw, msgspec.structs.replace(stored.spec, sharding=None))
    return interop.weakly_typed(array) if stored.spec.weak_type else array


def write_all(file: BinaryIO, data: memoryview) -> None:
    """Writes all of it, also to a file without a buffer, which may take a part at a time."""
    while data:
        data = data[file.write(data) :]


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError("there is no time left")


def _spec_of(array: jax.Array) -> Spec:
    place = shardings.of(array.sharding) or shardings.on_first()  # also where other messages say nothing of it
    return Spec(array.shape, str(array.dtype), getattr(array, "weak_type", False), place)  # keys have no such type
