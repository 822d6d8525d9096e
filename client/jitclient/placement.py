"""Where an array is, in the words of this process's own jax: on its default device, as far as it can tell."""

import sys
from typing import TYPE_CHECKING, Any

import numpy as np


class Placement:
    """What `jax.Array` says of shardings, devices, shards and memory."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def nbytes(self) -> int: ...
        def in_process(self) -> Any: ...
        def is_ready(self) -> bool: ...

    @property
    def sharding(self) -> Any:
        """The sharding that an array made in this process would have."""
        jax = _jax("sharding")
        device = jax.config.jax_default_device
        if isinstance(device, jax.sharding.Sharding):
            return device
        device = device if isinstance(device, jax.Device) else jax.local_devices(backend=device)[0]
        return jax.sharding.SingleDeviceSharding(device)

    def devices(self) -> set[Any]:
        """The devices of its sharding."""
        self.is_ready()
        return set(self.sharding.device_set)

    @property
    def device(self) -> Any:
        """Its one device."""
        (device,) = self.devices()
        return device

    @property
    def committed(self) -> bool:
        """Whether it must stay where it is: never, here."""
        return False

    _committed = committed
    is_fully_addressable = is_fully_replicated = property(lambda self: True)

    @property
    def format(self) -> Any:
        """The layout and sharding that an array made in this process would have."""
        _jax("format")
        return self.in_process().format

    @property
    def addressable_shards(self) -> Any:
        """Its one shard, fetched."""
        _jax("addressable_shards")
        return self.in_process().addressable_shards

    global_shards = addressable_shards

    def addressable_data(self, index: int) -> Any:
        """The part on the device of that number."""
        return (self,)[index]

    def on_device_size_in_bytes(self) -> int:
        """Bytes that it takes on its device."""
        return self.nbytes

    def copy_to_host_async(self) -> None:
        """A hint that it will be looked at: not taken."""
        self.is_ready()

    def to_device(self, device: Any, *, stream: Any = None) -> Any:
        """Its value on a device of this process."""
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
        raise AttributeError(f"{name} is said in jax's words: import jax")
    return sys.modules["jax"]


def _no_stream() -> Any:
    raise NotImplementedError("stream argument of array.to_device()")
