"""Conversion of arrays between devices, host memory and bytes, with dtype, weak type, key type and sharding."""

import functools
import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import jax
import msgspec
import numpy as np

from jitclient.core.polling import Polling
from jitclient.jaxside import interop, shardings
from jitclient.jaxside.avals import KEY_IMPLEMENTATIONS, WIDE
from jitclient.wire.array_transport import HostArray, is_key, raw_bytes, shaped, unpack
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding
from jitserver.programs.devices.backend import backend
from jitserver.programs.devices.serial import run_serially

try:
    from jaxlib import _jax

    _collect: Callable[[], object] = _jax.collect_garbage  # it has no public name
except (ImportError, AttributeError):
    _collect = gc.collect  # makes JAX collect, too

Decoder = Callable[[bytes | HostArray], Any]

release_host_buffers = _collect
"""Function that makes JAX release host memory that it has read; otherwise, JAX does so at its next call."""


# ---- kinds of arrays


def is_plain(spec: Spec) -> bool:
    """Return whether programs take and return such arrays in their host form, on the default device."""
    return not (is_key(spec) or spec.dtype in WIDE or spec.sharding or spec.dtype == "float0")


def is_multi_device(spec: Spec) -> bool:
    """Return whether an array with this spec is on several devices."""
    mesh = None if spec.sharding is None else spec.sharding.mesh
    return mesh is not None and len(mesh.devices) > 1


def spec_of(array: jax.Array) -> Spec:
    """Return the spec of an array, always with its sharding, which specs in messages may lack."""
    place = shardings.of(array.sharding) or shardings.on_first()
    return Spec(array.shape, str(array.dtype), getattr(array, "weak_type", False), place)  # keys have no weak type


def plain(array: jax.Array) -> jax.Array:
    """Return the array itself, or the key data of an array of typed PRNG keys, whose dtype numpy does not know."""
    dtype: Any = array.dtype
    return array if isinstance(dtype, np.dtype) else jax.random.key_data(array)


def is_ready(array: jax.Array) -> bool:
    """Return whether an array is computed or was deleted."""
    data: Any = plain(array)
    return bool(array.is_deleted() or data.is_ready())


# ---- to a device


def decoder(spec: Spec) -> Decoder:
    """Return a function that makes the argument of a program from received bytes."""
    if spec.sharding is not None and spec.sharding.memory is not None:
        # JAX's fast path for numpy arrays places them in the device's default memory, whatever the program expects.
        return functools.partial(put, spec=spec)
    return _unplaced(spec)


def _unplaced(spec: Spec) -> Decoder:
    if spec.dtype in WIDE:
        return functools.partial(_wide, spec=spec)
    return functools.partial(_keys if is_key(spec) else _host, spec=spec)


def _host(data: bytes | HostArray, spec: Spec) -> HostArray:
    return unpack(data, spec) if type(data) is bytes else shaped(data, spec)  # type: ignore[arg-type]


def _wide(data: bytes | HostArray, spec: Spec) -> Any:
    with jax.enable_x64(True):  # the client has already narrowed it if x64 is off
        return jax.device_put(_host(data, spec))


def _keys(data: bytes | HostArray, spec: Spec) -> Any:
    return jax.random.wrap_key_data(jax.numpy.asarray(_host(data, spec)), impl=KEY_IMPLEMENTATIONS[spec.dtype])


def put(data: bytes | HostArray, spec: Spec, default: Sharding | None = None) -> jax.Array:
    """Return an array made from received bytes, with the sharding of its spec, or else on the default device."""
    if default is not None:
        [device] = shardings.to_jax(default).device_set
        with jax.default_device(device):
            return put(data, spec)
    array: jax.Array = jax.device_put(_unplaced(spec)(data), spec.sharding and shardings.to_jax(spec.sharding))
    return array


def from_bytes(raw: HostArray, spec: Spec, committed: bool) -> jax.Array:
    """Return an array made from its bytes.

    Unless the array is `committed`, programs that use it may move it, as JAX does with arrays that were not placed
    explicitly.
    """
    array = put(raw, spec) if committed else put(raw, msgspec.structs.replace(spec, sharding=None), spec.sharding)
    return interop.weakly_typed(array) if spec.weak_type else array


def moved(array: jax.Array, spec: Spec) -> jax.Array:
    """Return the array with the sharding of a spec. If both arrays share memory, mark both as shared."""
    found: jax.Array = run_serially(jax.device_put, array, shardings.to_jax(spec.sharding))
    if _buffers(found) & _buffers(array):
        share(found)
        share(array)
    return found


def _buffers(array: jax.Array) -> set[int]:
    return {shard.data.unsafe_buffer_pointer() for shard in plain(array).addressable_shards}


# ---- to the host


def to_host(array: jax.Array) -> HostArray:
    """Return the value of an array after it is computed. The array keeps no copy of it in host memory."""
    return np.asarray(_without_host_copy(plain(array)))


def to_bytes(array: jax.Array, deadline: float) -> memoryview:
    """Return the bytes of an array after it is computed; give up at `deadline` (by `time.monotonic`).

    Raises:
        TimeoutError: the array was not computed in time.
        RuntimeError: the array was deleted, or its computation failed.
    """
    if array.is_deleted():  # calling is_ready on it would crash the process
        raise RuntimeError(f"Array has been deleted with shape={array.dtype.name}{list(array.shape)}.")
    data: Any = plain(array)
    polling = Polling(deadline - time.monotonic())
    while not data.is_ready():
        if not polling.pause():
            raise TimeoutError("no time left")
    return raw_bytes(np.asarray(_without_host_copy(data)))


def _without_host_copy(array: jax.Array) -> jax.Array:
    """Return an array of the same buffers, to which JAX attaches the copy in host memory that it makes for a read.

    JAX keeps such a copy as long as the array lives that was read. It makes none where the host shares the memory.
    """
    is_whole = array.sharding.num_devices == 1
    if array.is_deleted() or (is_whole and backend().shares_host_memory):
        return array
    release_host_buffers()  # the copies of earlier reads
    again = jax.make_array_from_single_device_arrays
    pieces = [again(piece.shape, piece.sharding, [piece]) for piece in _pieces(array)]
    return pieces[0] if is_whole else again(array.shape, array.sharding, pieces)


def _pieces(array: jax.Array) -> list[jax.Array]:
    if array.sharding.num_devices == 1:
        return [array]
    return [shard.data for shard in array.addressable_shards]


# ---- donation


def on_device(value: Any) -> jax.Array:
    """Return an argument as a JAX array that may be donated to a program: a copy if the array is shared."""
    if not isinstance(value, jax.Array):
        return jax.numpy.array(value)
    return value.copy() if is_shared(value) else value


_shared: dict[int, weakref.ref[Any]] = {}


def share(array: jax.Array) -> None:
    """Mark an array as shared for the rest of its life: it must not be donated to a program."""
    number = id(array)
    _shared[number] = weakref.ref(array, lambda _: _shared.pop(number, None))


def is_shared(array: jax.Array) -> bool:
    """Return whether an array is shared, and so must not be donated to a program."""
    return id(array) in _shared
