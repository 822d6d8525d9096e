"""How a daemon runs: what `jitserver serve` is told."""

import dataclasses

from jitclient.wire.address import Address
from jitserver.cache.memory import maps_share
from jitserver.platform.memory_limits import memory_bytes
from jitserver.platform.shared_memory import memory_share


def _program_share() -> int:
    """Bytes that programs may take where nobody says: an eighth of what this process may use."""
    return memory_bytes() // 8


@dataclasses.dataclass(frozen=True)
class Options:
    """How a daemon runs.

    Attributes:
        address: where it listens, unless systemd hands it a socket.
        idle_exit: seconds without a session and without kept arrays after which it ends; None: never.
        drain: seconds that running calls are given when it is told to end, and then the arrays of live sessions to get
            to the disk.
        most_classes: so many user classes it holds, which JAX never forgets; beyond, it begins anew when idle.
        shared_bytes: so much memory it shares with clients at most; 0: arrays go over the socket.
        array_bytes: so many bytes of arrays may live here; None: what the devices, or the machine, have room for.
        program_bytes: about so much memory programs take at most.
        program_maps: so many memory maps the process has at most, most of which are programs'.
        disk_bytes: so much the cache takes on the disk at most; None: a share of what is free.
        prewarm: whether it loads programs from the disk before anybody asks.
    """

    address: Address
    idle_exit: float | None = None
    drain: float = 30.0
    most_classes: int = 10_000
    shared_bytes: int = dataclasses.field(default_factory=memory_share)
    array_bytes: int | None = None
    program_bytes: int = dataclasses.field(default_factory=_program_share)
    program_maps: int = dataclasses.field(default_factory=maps_share)
    disk_bytes: int | None = None
    prewarm: bool = True
