"""Arrays as bytes and back as they are: dtype, weak type, keys, and where they lie."""

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
    """What an array is, and where it lies, also where messages say nothing of that."""
    place = shardings.of(array.sharding) or shardings.on_first()
    return Spec(array.shape, str(array.dtype), getattr(array, "weak_type", False), place)  # keys have no such type


def is_ready(array: jax.Array) -> bool:
    """Whether an array is computed, or will never be."""
    return bool(array.is_deleted() or _plain(array).is_ready())


def to_bytes(array: jax.Array, deadline: float) -> memoryview:
    """The bytes of an array, once it is computed; gives up at `deadline` (by `time.monotonic`).

    JAX keeps the copy in host memory that this makes of an array on an accelerator for as long as the array lives.

    Raises:
        TimeoutError: it was not computed in time.
        RuntimeError: it was deleted, or what computes it failed.
    """
    if array.is_deleted():  # JAX ends the process where such a one is asked whether it is ready
        raise RuntimeError(f"Array has been deleted with shape={array.dtype.name}{list(array.shape)}.")
    plain = _plain(array)
    while not plain.is_ready():
        if time.monotonic() > deadline:
            raise TimeoutError("there is no time left")
        time.sleep(_POLL_SECONDS)
    return raw_bytes(np.asarray(plain))


def from_bytes(raw: HostArray, spec: Spec, committed: bool) -> jax.Array:
    """The array of these bytes. One that is not `committed` to where it lies may be moved by its users, as JAX does
    with an array that nobody placed.

    Raises:
        Incompatible: there are fewer devices than it lay on.
    """
    if committed:
        array = device_arrays.resident(raw, spec)
    else:
        [device] = shardings.to_jax(spec.sharding).device_set
        with jax.default_device(device):
            array = device_arrays.resident(raw, msgspec.structs.replace(spec, sharding=None))
    return interop.weakly_typed(array) if spec.weak_type else array


def _plain(array: jax.Array) -> Any:
    """An array without JAX's own dtypes, which know nothing of being ready."""
    dtype: Any = array.dtype
    return array if isinstance(dtype, np.dtype) else jax.random.key_data(array)
