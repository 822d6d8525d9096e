"""Messages for introspection: what a daemon is doing, and what single programs are."""

from jitclient.wire.messages import Message, Status


class Top(Message):
    """Ask for a Snapshot, with programs that were called after `since`, the `now` of an earlier answer."""

    since: float = 0.0


class Show(Message):
    """Ask for the "hlo", "stablehlo", "jaxpr", "costs" or "memory" of a cached program, by its full key."""

    key: str
    what: str


class Pin(Message):
    """Pin or unpin the programs whose key or function name starts with, or equals, `prefix`."""

    prefix: str
    pinned: bool


class SessionInfo(Message):
    """A session: the process that started it, when by the daemon's clock, and what it did and holds."""

    pid: int
    begun: float
    calls: int
    arrays: int
    array_bytes: int
    program: str = ""  # of a client on another machine


class Making(Message):
    """A program that is being compiled: the phase, its duration, and the waiting processes, first come first."""

    key: str
    label: str
    phase: str  # "tracing", "compiling", ...
    seconds: float
    pids: tuple[int, ...]


class Running(Message):
    """A call that takes long: its program, as far as the thread that waits is in one, its duration, and its client,
    which is `gone` if it hung up or ended.
    """

    key: str
    label: str
    seconds: float
    pid: int
    gone: bool
    program: str = ""  # of a client on another machine


class Called(Message):
    """A program that was called: how often, and the total seconds. With an asynchronous device, these are the seconds
    of dispatch.
    """

    key: str
    label: str
    calls: int
    seconds: float


class DeviceMemory(Message):
    """The memory of a device, in bytes; None if it is unknown."""

    device: str
    used: int | None
    limit: int | None


class Snapshot(Message):
    """The daemon's activity at the time `now` of its clock. Counts are since its start."""

    now: float
    status: Status
    sessions: list[SessionInfo]
    making: list[Making]
    devices: list[DeviceMemory]
    programs: list[Called]
    running: list[Running] = []
