"""The daemon's devices."""

import dataclasses

from jitclient.sessions import process
from jitclient.wire.messages import DeviceInfo, Verb


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of the daemon's.

    Attributes:
        id: its place among them, which is that of the device of this process for which it stands in a mesh.
        kind: its maker's name for it.
        platform: "cpu", "gpu", ...
        memory_bytes: what programs can have of its memory; None where it does not say, as the CPU.
    """

    id: int
    kind: str
    platform: str
    memory_bytes: int | None


def devices() -> list[Device]:
    """The devices of the daemon, on which functions run.

    Raises:
        DaemonUnavailable: none answers, and none could be started.

    Example:
        >>> jitclient.devices()
        [Device(id=0, kind='cpu', platform='cpu', memory_bytes=None)]
    """
    found: list[DeviceInfo] = process.session().ask(Verb.DEVICES, None, list[DeviceInfo])
    return [Device(n, info.kind, info.platform, info.memory_bytes) for n, info in enumerate(found)]
