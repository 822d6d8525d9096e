"""Moves arrays between host memory and devices."""

import functools
import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jitclient.local_jax.avals import KEY_IMPLEMENTATIONS, WIDE
from jitclient.local_jax.shardings import to_jax
from jitclient.wire.array_transport import HostArray, is_key, shaped, unpack
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding
from jitserver.engine.alone import alone

Landing = Callable[[bytes | HostArray], Any]


def landing(spec: Spec) -> Landing:
    """A function that makes the argument of a program from received bytes."""
    if spec.dtype in WIDE:
        return functools.partial(_wide, spec=spec)
    return functools.partial(_keys if is_key(spec) else _host, spec=spec)


def is_plain(spec: Spec) -> bool:
    """Whether programs take and return such arrays in their host form, on the default device."""
    return not (is_key(spec) or spec.dtype in WIDE or spec.sharding or spec.dtype == "float0")


def is_spread(spec: Spec) -> bool:
    """Whether the array is on several devices."""
    mesh = None if spec.sharding is None else spec.sharding.mesh
    return mesh is not None and len(mesh.devices) > 1


def _host(data: bytes | HostArray, spec: Spec) -> HostArray:
    return unpack(data, spec) if type(data) is bytes else shaped(data, spec)  # type: ignore[arg-type]


def _wide(data: bytes | HostArray, spec: Spec) -> Any:
    with jax.enable_x64(True):  # the client has already narrowed it if x64 is off
        return jax.device_put(_host(data, spec))


def _keys(data: bytes | HostArray, spec: Spec) -> Any:
    return jax.random.wrap_key_data(jax.numpy.asarray(_host(data, spec)), impl=KEY_IMPLEMENTATIONS[spec.dtype])


def resident(data: bytes | HostArray, spec: Spec) -> jax.Array:
    """An array from received bytes, on the default device or with the sharding of its spec.

    Raises:
        Incompatible: the sharding needs more devices than there are.
    """
    value = landing(spec)(data)
    array: jax.Array = jax.device_put(value, spec.sharding and to_jax(spec.sharding))
    return array


def put(data: bytes | HostArray, spec: Spec, default: Sharding | None) -> jax.Array:
    """What `resident` returns, with another default device.

    Raises:
        Incompatible: there are fewer devices.
    """
    if default is None:
        return resident(data, spec)
    [device] = to_jax(default).device_set
    with jax.default_device(device):
        return resident(data, spec)


def moved(array: jax.Array, spec: Spec) -> jax.Array:
    """The array with the sharding of a spec. Both are shared if they have memory in common.

    Raises:
        Incompatible: the sharding needs more devices than there are.
        ValueError: it does not fit the array.
    """
    found: jax.Array = alone(jax.device_put, array, to_jax(spec.sharding))
    if _buffers(found) & _buffers(array):
        share(found)
        share(array)
    return found


def _buffers(array: jax.Array) -> set[int]:
    return {shard.data.unsafe_buffer_pointer() for shard in plain(array).addressable_shards}


def on_device(value: Any) -> jax.Array:
    """An argument as a JAX array that a program may take by donation: a copy if it is shared."""
    if not isinstance(value, jax.Array):
        return jax.numpy.array(value)
    return value.copy() if is_shared(value) else value


_shared: dict[int, weakref.ref[Any]] = {}


def share(array: jax.Array) -> None:
    """Marks an array as shared as long as it lives: no program may take it by donation."""
    number = id(array)
    _shared[number] = weakref.ref(array, lambda _: _shared.pop(number, None))


def is_shared(array: jax.Array) -> bool:
    """Whether an array is shared, so that no program may take it."""
    return id(array) in _shared


def nbytes(array: jax.Array) -> int:
    """Bytes of an array on all its devices."""
    sharding = array.sharding
    if len(sharding.device_set) == 1:
        return int(array.nbytes)
    return math.prod(sharding.shard_shape(array.shape)) * array.dtype.itemsize * len(sharding.device_set)


def to_host(array: jax.Array) -> HostArray:
    """The value of an array, once it is computed."""
    return np.asarray(plain(array))


def plain(array: jax.Array) -> jax.Array:
    """The array, or the data of one of JAX's own dtypes, those of typed PRNG keys."""
    dtype: Any = array.dtype
    return array if isinstance(dtype, np.dtype) else jax.random.key_data(array)


def release_host_buffers() -> None:
    """Makes JAX release host memory that it has read, which it otherwise does at its next call."""
    _collect()


def _jax_collector() -> Callable[[], object]:
    try:
        from jaxlib import _jax  # there is no public way to empty JAX's list of references to drop

        return _jax.collect_garbage  # type: ignore[no-any-return]
    except (ImportError, AttributeError):
        return gc.collect  # a collection makes JAX do the same


_collect = _jax_collector()
