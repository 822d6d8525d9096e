"""Conversions between JAX's shardings and messages. The functions import jax when they are called."""

import functools
from typing import Any

from jitclient.errors import CaptureError, Incompatible
from jitclient.jaxside import backend_view
from jitclient.wire.shardings import Axes, Mesh, Sharding


def of_array(array: Any) -> Sharding | None:
    """Return the sharding of an array of this process's own jax; None if the array is not committed."""
    return of(array.sharding) if getattr(array, "committed", False) else None


def of(sharding: Any) -> Sharding | None:
    """Return the message for a sharding; None for the default, the first device.

    Raises:
        CaptureError: The sharding cannot be sent.
    """
    import jax

    if isinstance(sharding, jax.sharding.PartitionSpec):
        return Sharding(None, _axes_of(sharding))
    if isinstance(sharding, jax.sharding.NamedSharding):
        return Sharding(of_mesh(sharding.mesh), _axes_of(sharding.spec), _memory_of(sharding))
    devices = list(getattr(sharding, "device_set", ()))
    if len(devices) != 1:
        raise CaptureError(f"a {type(sharding).__name__} cannot be sent to the daemon: use a NamedSharding")
    found = Sharding(on_device(devices[0]).mesh, (), _memory_of(sharding))
    return None if found == on_first() else found


@functools.lru_cache(maxsize=256)
def of_mesh(mesh: Any) -> Mesh:
    """Return the message for a mesh, which may be abstract.

    Raises:
        CaptureError: The mesh cannot be sent.
    """
    import jax

    axes = tuple(dict(mesh.shape).items())
    if not all(isinstance(name, str) for name, _ in axes):
        raise CaptureError(f"a mesh whose axis names are not strings cannot be sent to the daemon: {mesh}")
    types = tuple(kind.name for kind in mesh.axis_types)
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return Mesh(axes, types, ())
    return Mesh(axes, types, *_positions(mesh.devices.flat))


def to_jax(message: Sharding | None) -> Any:
    """Return the sharding that a message describes, over this process's own devices.

    Raises:
        Incompatible: The sharding needs more devices than this process has.
    """
    import jax

    if message is None:
        return jax.sharding.SingleDeviceSharding(backend_view.own_devices()[0])
    if message.mesh is None:
        return jax.sharding.PartitionSpec(*message.spec)
    if not message.mesh.axes:
        [device] = _devices_of(message.mesh)
        return jax.sharding.SingleDeviceSharding(device, memory_kind=message.memory)
    spec = jax.sharding.PartitionSpec(*message.spec)
    return jax.sharding.NamedSharding(mesh_to_jax(message.mesh), spec, memory_kind=message.memory)


@functools.lru_cache(maxsize=256)
def mesh_to_jax(message: Mesh) -> Any:
    """Return the mesh that a message describes, over this process's own devices.

    Raises:
        Incompatible: The mesh needs more devices than this process has.
    """
    import jax
    import numpy as np

    names, sizes = tuple(name for name, _ in message.axes), tuple(size for _, size in message.axes)
    types = tuple(jax.sharding.AxisType[kind] for kind in message.types)
    if not message.devices:
        return jax.sharding.AbstractMesh(sizes, names, axis_types=types)
    devices = np.array(_devices_of(message), dtype=object).reshape(sizes)
    return jax.sharding.Mesh(devices, names, axis_types=types)


def on_device(device: Any) -> Sharding:
    """Return the message for the sharding on one device.

    Raises:
        CaptureError: The device does not belong to this process.
    """
    return Sharding(Mesh((), (), *_positions([device])))


def on_first(platform: str = "") -> Sharding:
    """Return the message for the sharding on the first device of a platform; "" means the default platform."""
    return Sharding(Mesh((), (), (0,), platform))


def _positions(devices: Any) -> tuple[tuple[int, ...], str]:
    """Return devices as positions among the devices of their platform, and the platform, "" for the default one."""
    import jax

    devices = list(devices)
    platform = devices[0].platform
    known = {device: position for position, device in enumerate(jax.devices(platform))}
    if not all(device in known for device in devices):
        raise CaptureError("devices of several platforms, or of another process, cannot be sent to the daemon")
    own = "" if platform == jax.devices()[0].platform else str(platform)
    return tuple(known[device] for device in devices), own


def _devices_of(message: Mesh) -> list[Any]:
    try:
        devices = backend_view.own_devices(message.platform or None)
    except RuntimeError as error:
        raise Incompatible(f"there are no devices of platform {message.platform!r}: {error}") from error
    if max(message.devices) >= len(devices):
        raise Incompatible.with_devices(max(message.devices) + 1, len(devices))
    return [devices[position] for position in message.devices]


def _axes_of(spec: Any) -> tuple[Axes, ...]:
    plain = all(axes is None or isinstance(axes, str) or _are_names(axes) for axes in spec)
    if not plain or getattr(spec, "unreduced", None) or getattr(spec, "reduced", None):
        raise CaptureError(f"{spec} cannot be sent to the daemon: its axes must be names")
    return tuple(tuple(axes) if isinstance(axes, (tuple, list)) else axes for axes in spec)


def _are_names(axes: Any) -> bool:
    return isinstance(axes, (tuple, list)) and all(isinstance(name, str) for name in axes)


def _memory_of(sharding: Any) -> str | None:
    """Return the memory kind of a sharding; None if it is the devices' default."""
    kind = sharding.memory_kind
    device = next(iter(getattr(sharding, "device_set", ())), None)
    return None if kind is None or device is None or kind == device.default_memory().kind else str(kind)
