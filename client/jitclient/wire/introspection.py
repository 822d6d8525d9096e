"""Messages for introspection: the daemon's activity, and the contents of single programs."""

from jitclient.wire.messages import Message, Status


class Top(Message):
    """Request for a Snapshot, with the programs called after `since`, the `now` of an earlier answer."""

    since: float = 0.0


class Show(Message):
    """Request for the "hlo", "stablehlo", "jaxpr", "costs" or "memory" of a cached program, by its full key."""

    key: str
    what: str


class Pin(Message):
    """Request to pin or unpin the programs whose key or function name starts with, or equals, `prefix`."""

    prefix: str
    pinned: bool


class SessionInfo(Message):
    """Session: the process that started it, its start time by the daemon's clock, its calls and its arrays."""

    pid: int
    begun: float
    calls: int
    arrays: int
    array_bytes: int
    program: str = ""  # of a client on another machine


class Making(Message):
    """Program that is being compiled: the phase, its duration, and the processes that still wait for the program.

    The process whose request is being worked on comes first, then the others in order of arrival. There are none if
    all have been interrupted or have exited: what was begun is finished for later calls.
    """

    key: str
    label: str
    phase: str  # "tracing", "compiling", ...
    seconds: float
    pids: tuple[int, ...]


class Running(Message):
    """Call that takes long: its program, its duration, and its client.

    The program is the one that the waiting thread is in, if any. The client is `gone` if it disconnected or exited.
    """

    key: str
    label: str
    seconds: float
    pid: int
    gone: bool
    program: str = ""  # of a client on another machine


class Called(Message):
    """Program that was called: the number of calls, and their total seconds.

    With an asynchronous device, each call counts as long as the latest one that was measured.
    """

    key: str
    label: str
    calls: int
    seconds: float


class DeviceMemory(Message):
    """Memory of a device, in bytes; None if unknown."""

    device: str
    used: int | None
    limit: int | None


class Snapshot(Message):
    """Activity of the daemon at the time `now` of its clock. Counts are since its start."""

    now: float
    status: Status
    sessions: list[SessionInfo]
    making: list[Making]
    devices: list[DeviceMemory]
    programs: list[Called]
    running: list[Running] = []
