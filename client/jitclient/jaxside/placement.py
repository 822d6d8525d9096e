"""The sharding of an array on the daemon, as objects of this process's own jax."""

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from jitclient.core.tracebacks import api_boundaries
from jitclient.errors import Incompatible
from jitclient.jaxside.shardings import to_jax
from jitclient.wire.array_transport import dtype_named, is_key
from jitclient.wire.messages import Spec
from jitclient.wire.shardings import Sharding


@api_boundaries()
class Placement:
    """The properties of `jax.Array` that concern shardings, devices, shards and memory."""

    __slots__ = ()

    if TYPE_CHECKING:
        spec: Spec
        # The array's location if it is not committed and not on the first device.
        place: Sharding | None

        @property
        def nbytes(self) -> int: ...
        def in_process(self) -> Any: ...
        def is_ready(self) -> bool: ...

    @property
    def sharding(self) -> Any:
        """The array's sharding, over this process's own devices.

        Raises:
            AttributeError: This process has no jax, or its jax has fewer devices than the sharding needs.
        """
        jax = _jax("sharding")
        try:
            return to_jax(self.spec.sharding or self.place)
        except Incompatible as error:
            # JAX's functions accept an AttributeError here.
            raise AttributeError(
                f"the array is on devices of the daemon that jax in this process (which has {jax.device_count()}) "
                "lacks. Start the program with XLA_FLAGS=--xla_force_host_platform_device_count=N"
            ) from error

    def devices(self) -> set[Any]:
        """Return the devices of the array's sharding."""
        self.is_ready()
        return set(self.sharding.device_set)

    @property
    def device(self) -> Any:
        """The array's device, or its sharding if it has several devices."""
        devices = self.devices()
        return self.sharding if len(devices) > 1 else devices.pop()

    @property
    def committed(self) -> bool:
        """Whether the array was placed explicitly."""
        return self.spec.sharding is not None

    _committed = committed

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each of the array's devices has all of its data."""
        return self.spec.sharding is None or bool(self.sharding.is_fully_replicated)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can access all of the array; always True."""
        return True

    @property
    def format(self) -> Any:
        """The layout and sharding that the array would have if it were made in this process.

        Raises:
            AttributeError: As for `sharding`; or, as in JAX, the array is of typed PRNG keys.
        """
        _jax("format")
        if is_key(self.spec):
            raise AttributeError("arrays of typed PRNG keys have no format")
        like = _format_here(len(self.spec.shape), self.spec.dtype)
        return type(like)(like.layout, self.sharding)

    @property
    def addressable_shards(self) -> Any:
        """The array's shards, fetched from the daemon."""
        return self._placed("addressable_shards").addressable_shards

    global_shards = addressable_shards

    def addressable_data(self, index: int) -> Any:
        """Return the part of the array that is on the device with this number."""
        return self if self.spec.sharding is None and index == 0 else self.addressable_shards[index].data

    def _placed(self, name: str) -> Any:
        return _jax(name).device_put(self.in_process(), self.sharding)

    def placed(self, value: Any) -> Any:
        """Return the array's value, placed in this process as it is on the daemon if this process has such devices."""
        jax = sys.modules.get("jax")
        if self.spec.sharding is None or jax is None:
            return value
        with contextlib.suppress(AttributeError), jax.ensure_compile_time_eval():
            return jax.device_put(value, self.sharding)
        return value

    @property
    def unsafe_buffer_pointer(self) -> Any:
        """No pointer: the array is in the memory of another process.

        Raises:
            AttributeError: Always, so that `hasattr` is False.
        """
        raise AttributeError("the array is in the daemon's memory. `x.in_process()` has an unsafe_buffer_pointer.")

    def on_device_size_in_bytes(self) -> int:
        """Return the size in bytes on the device."""
        return self.nbytes

    def copy_to_host_async(self) -> None:
        """Do nothing, for compatibility with `jax.Array`.

        Raises:
            RuntimeError: The array was deleted.
        """
        self.is_ready()

    def to_device(self, device: Any, *, stream: Any = None) -> Any:
        """Return the array's value on a device of this process.

        Raises:
            NotImplementedError: A stream is given.
        """
        return _jax("to_device").device_put(self.in_process(), device) if stream is None else _no_stream()

    def __dlpack__(self, **options: Any) -> Any:
        value = self.in_process()
        return (value if not isinstance(value, np.ndarray) else value.copy()).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        device: tuple[Any, int] = self.in_process().__dlpack_device__()
        return device

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return self.in_process().__array_namespace__(api_version=api_version)


def _jax(name: str) -> Any:
    if "jax" not in sys.modules:
        raise AttributeError(f"{name} needs jax in this process. Import jax first.")
    return sys.modules["jax"]


@functools.cache
def _format_here(rank: int, dtype: str) -> Any:
    """Return the format of an array of this process. The first call of a process imports modules of JAX."""
    jax = sys.modules["jax"]
    with jax.ensure_compile_time_eval():
        return jax.device_put(np.empty((1,) * rank, dtype_named(dtype))).format


def _no_stream() -> Any:
    raise NotImplementedError("array.to_device(): the stream argument is not supported")
