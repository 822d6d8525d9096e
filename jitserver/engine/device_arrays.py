"""Arrays between the host's memory and the devices."""

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

Landing = Callable[[bytes | HostArray], Any]


def landing(spec: Spec) -> Landing:
    """What makes an argument for a program out of bytes off the wire."""
    if spec.dtype in WIDE:
        return functools.partial(_wide, spec=spec)
    return functools.partial(_keys if is_key(spec) else _host, spec=spec)


def is_plain(spec: Spec) -> bool:
    """Whether a program takes and gives such an array as it is on the host, and on the default device."""
    return not (is_key(spec) or spec.dtype in WIDE or spec.sharding or spec.dtype == "float0")


def _host(data: bytes | HostArray, spec: Spec) -> HostArray:
    return unpack(data, spec) if type(data) is bytes else shaped(data, spec)  # type: ignore[arg-type]


def _wide(data: bytes | HostArray, spec: Spec) -> Any:
    with jax.enable_x64(True):  # the client has narrowed it already, if that was to be done
        return jax.device_put(_host(data, spec))


def _keys(data: bytes | HostArray, spec: Spec) -> Any:
    return jax.random.wrap_key_data(jax.numpy.asarray(_host(data, spec)), impl=KEY_IMPLEMENTATIONS[spec.dtype])


def resident(data: bytes | HostArray, spec: Spec) -> jax.Array:
    """An array on the default device, or where its spec says, out of bytes off the wire.

    Raises:
        Incompatible: there are fewer devices.
    """
    value = landing(spec)(data)
    array: jax.Array = jax.device_put(value, spec.sharding and to_jax(spec.sharding))
    return array


def on_device(value: Any) -> jax.Array:
    """An argument as an array of JAX's that a program may take: a copy, where others have it too."""
    if not isinstance(value, jax.Array):
        return jax.numpy.array(value)
    return value.copy() if is_shared(value) else value


_shared: dict[int, weakref.ref[Any]] = {}


def share(array: jax.Array) -> None:
    """Notes that several have an array from now on, for as long as it lives: no program may take it."""
    number = id(array)
    _shared[number] = weakref.ref(array, lambda _: _shared.pop(number, None))


def is_shared(array: jax.Array) -> bool:
    """Whether several have an array, which no program may take."""
    return id(array) in _shared


def nbytes(array: jax.Array) -> int:
    """Bytes that an array takes on all the devices that it lies on."""
    sharding = array.sharding
    if len(sharding.device_set) == 1:
        return int(array.nbytes)
    return math.prod(sharding.shard_shape(array.shape)) * array.dtype.itemsize * len(sharding.device_set)


def to_host(array: jax.Array) -> HostArray:
    """The value of an array, once it is computed."""
    dtype: Any = array.dtype
    if not isinstance(dtype, np.dtype):  # that of typed PRNG keys is JAX's own
        return np.asarray(jax.random.key_data(array))
    return np.asarray(array)


def release_host_buffers() -> None:
    """Has JAX drop its hold on host memory that it has read, which otherwise lasts until its next call."""
    _collect()


def _jax_collector() -> Callable[[], object]:
    try:
        from jaxlib import _jax  # no public way: the hold goes with JAX's own list of references to drop

        return _jax.collect_garbage  # type: ignore[no-any-return]
    except (ImportError, AttributeError):
        return gc.collect  # whose start has JAX do the same


_collect = _jax_collector()
