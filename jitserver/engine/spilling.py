"""Arrays to disk and back as they are: dtype, weak type, keys, and where they lie. Many can be in one file."""

import contextlib
import os
import zlib
from typing import BinaryIO

import jax
import msgspec

from jitclient.local_jax import interop, shardings
from jitclient.wire.arrays import allocate, nbytes_of, raw_bytes
from jitclient.wire.messages import Spec
from jitserver.engine import arrays

_STEP_BYTES = 16 << 20


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


def write(file: BinaryIO, array: jax.Array) -> Stored:
    """Appends an array to a file, once it is computed.

    JAX keeps the copy in host memory that this makes of an array on an accelerator for as long as the array lives.

    Raises:
        OSError: there is no room. The file is as long as before, if that can be had.
        CaptureError: its sharding has no form that can be written.
        RuntimeError: it was deleted, or what computes it failed.
    """
    spec = _spec_of(array)
    start = file.seek(0, os.SEEK_END)
    data, checksum = raw_bytes(arrays.to_host(array)), 0
    try:
        for begin in range(0, len(data), _STEP_BYTES):
            part = data[begin : begin + _STEP_BYTES]
            file.write(part)
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


def _spec_of(array: jax.Array) -> Spec:
    place = shardings.of(array.sharding) or shardings.on_first()  # also where other messages say nothing of it
    return Spec(array.shape, str(array.dtype), getattr(array, "weak_type", False), place)  # keys have no such type
