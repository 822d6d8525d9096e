"""Arrays as bytes and back, with dtype, weak type, key type and sharding."""

import time
from typing import Any

import jax
import msgspec
import numpy as np

from jitclient.local_jax import interop, shardings
from jitclient.wire.array_transport import HostArray, raw_bytes
from jitclient.wire.messages import Spec
from jitserver.engine import device_arrays

_POLL_SECONDS = 0.01


def spec_of(array: jax.Array) -> Spec:
    """The spec of an array, always with its sharding, which specs in messages may lack."""
    place = shardings.of(array.sharding) or shardings.on_first()
    return Spec(array.shape, str(array.dtype), getattr(array, "weak_type", False), place)  # keys have no weak type


def is_ready(array: jax.Array) -> bool:
    """Whether an array is computed or was deleted."""
    data: Any = device_arrays.plain(array)
    return bool(array.is_deleted() or data.is_ready())


def to_bytes(array: jax.Array, deadline: float) -> memoryview:
    """The bytes of an array, once it is computed; gives up at `deadline` (by `time.monotonic`).

    For an array on an accelerator this makes a copy in host memory, which JAX keeps as long as the array lives.

    Raises:
        TimeoutError: it was not computed in time.
        RuntimeError: it was deleted, or its computation failed.
    """
    if array.is_deleted():  # calling is_ready on it would crash the process
        raise RuntimeError(f"Array has been deleted with shape={array.dtype.name}{list(array.shape)}.")
    plain: Any = device_arrays.plain(array)
    while not plain.is_ready():
        if time.monotonic() > deadline:
            raise TimeoutError("no time left")
        time.sleep(_POLL_SECONDS)
    return raw_bytes(np.asarray(plain))


def from_bytes(raw: HostArray, spec: Spec, committed: bool) -> jax.Array:
    """The array of these bytes. Unless it is `committed`, its users may move it, as JAX does with arrays that were not
    placed explicitly.

    Raises:
        Incompatible: its sharding needs more devices than there are.
    """
    if committed:
        array = device_arrays.resident(raw, spec)
    else:
        array = device_arrays.put(raw, msgspec.structs.replace(spec, sharding=None), spec.sharding)
    return interop.weakly_typed(array) if spec.weak_type else array
