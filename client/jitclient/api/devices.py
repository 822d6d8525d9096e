"""The daemon's devices."""

import dataclasses

from jitclient.session import process
from jitclient.wire.messages import DeviceInfo, Verb


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of the daemon.

    Attributes:
        id: its position among the daemon's devices. In a mesh, the local device with the same id stands for it.
        kind: the name of its model.
        platform: "cpu", "gpu", ...
        memory_bytes: the memory that programs can use; None if unknown, as on the CPU.
    """

    id: int
    kind: str
    platform: str
    memory_bytes: int | None


def devices() -> list[Device]:
    """The devices of the daemon.

    Raises:
        DaemonUnavailable: no daemon answers, and none could be started.

    Example:
        >>> jitclient.devices()
        [Device(id=0, kind='cpu', platform='cpu', memory_bytes=None)]
    """
    found: list[DeviceInfo] = process.session().ask(Verb.DEVICES, None, list[DeviceInfo])
    return [Device(n, info.kind, info.platform, info.memory_bytes) for n, info in enumerate(found)]
