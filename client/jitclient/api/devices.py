"""Devices of the daemon, as users list them."""

import dataclasses

from jitclient.core.tracebacks import api_boundary
from jitclient.session import process
from jitclient.wire.messages import DeviceInfo, Verb


@dataclasses.dataclass(frozen=True)
class Device:
    """Device of the daemon.

    Attributes:
        id: position among the daemon's devices. In a mesh, the local device with the same id stands for it.
        kind: name of the device model.
        platform: "cpu", "gpu", ...
        memory_bytes: memory that programs can use; None if unknown, as on the CPU.
    """

    id: int
    kind: str
    platform: str
    memory_bytes: int | None


@api_boundary
def devices() -> list[Device]:
    """Return the devices of the daemon.

    Raises:
        DaemonUnavailable: no daemon answers, and none could be started.

    Example:
        >>> jitclient.devices()
        [Device(id=0, kind='cpu', platform='cpu', memory_bytes=None)]
    """
    found: list[DeviceInfo] = process.session().ask(Verb.DEVICES, None, list[DeviceInfo])
    return [Device(n, info.kind, info.platform, info.memory_bytes) for n, info in enumerate(found)]
