"""Messages for introspection: the daemon's counters and activity, its programs, and the contents of single ones."""

from jitclient.wire.messages import Message


class Match(Message):
    """Selection of the entries whose call key or function name starts with, or equals, `prefix`.

    Only entries whose key comes after `after` are selected. An empty `prefix` selects all.
    """

    prefix: str = ""
    after: str = ""


class EntryInfo(Message):
    """Cached program, as people see it."""

    key: str
    function_key: str
    name: str
    where: str
    label: str  # name and first arguments
    signature: str  # name and all arguments
    options: str
    context: dict[str, str]
    seconds: dict[str, float]
    saved: float
    hits: int
    created: float  # seconds since the epoch
    last_used: float
    code_bytes: int
    pinned: bool = False
    disk_bytes: int = 0  # 0: not on disk
    in_memory: bool = False
    # Seconds of the slowest call on the last daemon that made more than one; 0 if unknown.
    slowest: float = 0.0
    base: str = ""  # call key without the manifest
    names: tuple[str, ...] = ()  # names in the manifest
    # Why the disk has no executable of the program, which must be compiled again after a restart.
    no_executable: str = ""
    loading: float = 0.0  # seconds that its last load from the disk took; 0 if unknown


class Listed(Message):
    """As many entries as fit into one message, in the order of their keys, and whether there are more."""

    found: list[EntryInfo]
    more: bool


class ShareStatus(Message):
    """Counts of the lab's cache since the start of a daemon. `why_off` says why it is not asked now, if it is not."""

    url: str
    writes: bool
    found: int
    missed: int
    uploaded: int
    seconds_saved: float
    rejected: dict[str, int]  # by reason
    why_off: str = ""


class Status(Message):
    """Counters of the daemon. The CLI prints them under these names."""

    pid: int
    version: str
    address: str
    uptime_s: float
    python: str
    packages: dict[str, str]
    devices: tuple[str, ...]
    memory_bytes: int
    sessions: int
    arrays: int
    array_bytes: int
    shared_bytes: int  # shared memory, leased or kept for later leases
    lent_bytes: int  # shared memory that is leased now
    entries: int
    classes: int
    calls: int
    hits: int
    misses: int
    restores: int
    dry_runs: int
    traces: int
    compiles: int
    text_hits: int
    captures_loaded: int
    client_traces: int
    local_runs: int
    compile_seconds: float
    compile_seconds_saved: float
    names: int = 0
    """Number of named trees of arrays."""
    lost_names: tuple[str, ...] = ()
    """Names whose trees a daemon could not save or load."""
    abandoned: int = 0  # running calls whose clients have gone
    disk_bytes: int = 0
    """Bytes of programs on the disk."""
    compilations: int = 0
    """Number of compilations on the disk that jax itself made in clients, runs and daemons."""
    compilation_bytes: int = 0
    other_disk_bytes: int = 0
    """Bytes that the caches of the user's other environments took on the disk when they were last measured."""
    max_disk_bytes: int = 0
    """Limit on the caches of all environments together; 0: there is no disk cache."""
    drain_seconds: float = 0.0
    """Seconds that running calls have to finish on shutdown."""
    restarted: str = ""
    """When and why the daemon restarted by itself; empty if it did not, or if systemd started it again."""
    abandoned_programs: int = 0  # programs that are being made, and whose clients have all gone
    share: ShareStatus | None = None
    """The lab's cache; None if this daemon uses none."""
    recordings: int = 0
    """Number of clients for which the profiler records: at most one."""


class Show(Message):
    """Request for the "hlo", "stablehlo", "jaxpr", "costs" or "memory" of a cached program, by its full key."""

    key: str
    what: str


class Pin(Message):
    """Request to pin or unpin the programs whose key or function name starts with, or equals, `prefix`."""

    prefix: str
    pinned: bool


class SessionInfo(Message):
    """Session: the process that started it, its start time by the daemon's clock, its calls and its arrays.

    `seconds` are those of its calls, as for `Called`. Programs that have `moved_in` are called in the process
    itself, and such calls do not count.
    """

    pid: int
    begun: float
    calls: int
    arrays: int
    array_bytes: int
    program: str = ""  # of a client on another machine
    seconds: float = 0.0
    moved_in: int = 0


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

    With an asynchronous device, each call counts as long as the latest one that was measured, and `queued` are the
    seconds for which calls waited until the device had finished earlier ones.
    """

    key: str
    label: str
    calls: int
    seconds: float
    queued: float = 0.0


class DeviceMemory(Message):
    """Memory of a device, in bytes; None if unknown.

    `reserved` is what XLA has taken from the device for its arrays, in use or free, and `largest_free` the largest
    block in it that is free.
    """

    device: str
    used: int | None
    limit: int | None
    reserved: int | None = None
    largest_free: int | None = None


class Snapshot(Message):
    """Activity of the daemon. Counts are since its start."""

    status: Status
    sessions: list[SessionInfo]
    making: list[Making]
    devices: list[DeviceMemory]
    programs: list[Called]
    running: list[Running] = []
