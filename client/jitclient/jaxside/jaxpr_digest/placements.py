"""Digests of meshes, shardings and devices, computed from their public attributes.

All attributes cannot be used: some of these classes also store caches in them, and others are made in C.
"""

import functools
from collections.abc import Callable
from typing import Any

from jitclient.jaxside.jaxpr_digest.combining import NotComparableError

_Fields = Callable[[Any], list[Any]]


def placement_fields(value: Any) -> list[Any] | None:
    """Return the values that distinguish a mesh, sharding or device from others of its class; None for other objects.

    Raises:
        NotComparableError: The object is a sharding of another class.
    """
    for cls, fields in _classes().items():
        if type(value) is cls:
            return fields(value)
    if isinstance(value, _sharding_class()):
        raise NotComparableError(value)
    return None


@functools.cache
def _classes() -> dict[type, _Fields]:
    import jax
    from jax import sharding

    return {
        sharding.PartitionSpec: lambda spec: [tuple(spec), public_slots(spec)],
        sharding.AbstractMesh: lambda mesh: [
            *(mesh.axis_sizes, mesh.axis_names, mesh.axis_types, getattr(mesh, "abstract_device", None))
        ],
        sharding.Mesh: lambda mesh: [
            *(mesh.devices.shape, list(mesh.devices.flat), mesh.axis_names, getattr(mesh, "axis_types", None))
        ],
        sharding.NamedSharding: lambda placed: [placed.mesh, placed.spec, placed.memory_kind, repr(placed)],
        sharding.SingleDeviceSharding: lambda placed: [*placed.device_set, placed.memory_kind, repr(placed)],
        type(jax.devices()[0]): lambda device: [device.platform, device.device_kind, device.process_index, device.id],
    }


@functools.cache
def _sharding_class() -> type:
    from jax.sharding import Sharding

    return Sharding


def public_slots(value: Any) -> dict[str, Any]:
    """Return the contents of an object's public slots. jax stores computed values in private ones."""
    names = [name for cls in type(value).__mro__ for name in vars(cls).get("__slots__", ()) if name[0] != "_"]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}
