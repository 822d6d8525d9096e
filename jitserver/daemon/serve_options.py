"""The options of a daemon, which `jitserver serve` sets."""

import dataclasses
import resource

from jitclient.wire.address import Address
from jitserver.store.memory import maps_share
from jitserver.system.memory_limits import memory_bytes
from jitserver.system.shared_memory import memory_share


def _program_share() -> int:
    """Return the default memory limit for programs: an eighth of the memory that this process may use."""
    return memory_bytes() // 8


def _connection_share() -> int:
    """Return the default limit of connections, each of which takes up to three file descriptors and a thread."""
    return min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a daemon.

    Attributes:
        address: the address to listen at, unless systemd passes a socket.
        idle_exit: seconds without sessions and named arrays after which the daemon exits; None: never.
        drain: seconds for running calls to finish on shutdown, and then for saving the arrays of sessions.
        most_classes: the number of user classes, which JAX never frees, beyond which the daemon restarts when idle.
        shared_bytes: limit of the memory shared with clients; 0: arrays are sent over the socket.
        array_bytes: memory budget of arrays on each device; None: a share of its memory, or of the machine's.
        program_bytes: approximate memory limit of programs.
        program_maps: limit of the memory maps of the process, most of which belong to programs.
        most_connections: limit of connections with sessions.
        disk_bytes: limit of the cache on disk; None: a share of the free space.
        packages: packages to import once the daemon serves, as far as they depend on jax.
        prewarm: whether to load programs from disk at the start.
    """

    address: Address
    idle_exit: float | None = None
    drain: float = 30.0
    most_classes: int = 10_000
    shared_bytes: int = dataclasses.field(default_factory=memory_share)
    array_bytes: int | None = None
    program_bytes: int = dataclasses.field(default_factory=_program_share)
    program_maps: int = dataclasses.field(default_factory=maps_share)
    most_connections: int = dataclasses.field(default_factory=_connection_share)
    disk_bytes: int | None = None
    packages: tuple[str, ...] = ()
    prewarm: bool = True
