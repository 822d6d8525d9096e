"""Messages about what a daemon is at, and about single programs: for people who look inside."""

from jitclient.wire.messages import Message, Status


class Top(Message):
    """Ask what goes on. Of the programs, those are told that were called after `since`, which is `now` of an answer."""

    since: float = 0.0


class Show(Message):
    """Ask about a cached program, by its whole key: for its "hlo", "stablehlo" or "jaxpr", its "costs" or "memory"."""

    key: str
    what: str


class Pin(Message):
    """Have the programs stay whose key or function name starts with, or equals, `prefix`; or let them go again."""

    prefix: str
    pinned: bool


class SessionInfo(Message):
    """A session: the process that began it, when by the daemon's clock, and what it did and holds."""

    pid: int
    begun: float
    calls: int
    arrays: int
    array_bytes: int


class Making(Message):
    """A program that is being made: what that has come to, since when, and the processes that wait for it, the first
    one before the others.
    """

    key: str
    label: str
    phase: str  # "tracing", "compiling", ...
    seconds: float
    pids: tuple[int, ...]


class Called(Message):
    """A program that was called: how often, and the seconds of these calls. Where a device works beside the host, those
    are what it took to hand them over.
    """

    key: str
    label: str
    calls: int
    seconds: float


class DeviceMemory(Message):
    """The memory of a device, in bytes; None where it cannot be known."""

    device: str
    used: int | None
    limit: int | None


class Snapshot(Message):
    """What goes on at the moment `now` of the daemon's clock. What is counted, is counted since the daemon started."""

    now: float
    status: Status
    sessions: list[SessionInfo]
    making: list[Making]
    devices: list[DeviceMemory]
    programs: list[Called]
