"""The contract: every message that crosses the wire, and the verbs that carry them.

Verbs of control are rpyc requests `(verb, bytes) -> bytes`. Calls are frames of our own kinds on the
same channel: the client sends RUN, the daemon answers DONE, and BUSY while it works on an answer. LEASE asks for shared
memory, LEASED answers, and RETURN gives it back.
"""

import enum

import msgspec

from jitclient.wire.shardings import JitShardings, Sharding

PROTOCOL = 7
"""Compared at the handshake: raised whenever a message changes its meaning or its form."""

RUN, DONE, BUSY, LEASE, LEASED, RETURN = 16, 17, 18, 19, 20, 21
"""Kinds of frame, beside rpyc's own 1, 2 and 3."""

INLINE_BYTES = 64 << 10
"""Arrays up to this size ride in the message; larger ones go beside it."""

MAX_FRAME_BYTES = 16 << 20
"""A longer frame is refused before anything is allocated for it."""

UPLOAD_BYTES = 8 << 20
"""A capture travels in parts of this size."""

MOST_CAPTURE_BYTES = 1 << 30
"""A larger capture is refused: it holds arrays that should be arguments."""


OK, FAILED = b"\0", b"\1"
"""The first byte of a verb's answer: its message follows, or a Failure."""


class Verb(enum.StrEnum):
    """What a client can ask for, each with its message and answer."""

    HELLO = "hello"  # Hello -> Welcome
    LOOKUP = "lookup"  # Lookup -> Prepared, or nothing where the call key is unknown
    UPLOAD = "upload"  # Upload -> nothing
    PREPARE = "prepare"  # Prepare -> Prepared
    INSPECT = "inspect"  # Inspect -> Inspected
    REPORT = "report"  # Report -> nothing
    GOODBYE = "goodbye"  # nothing -> nothing: ends the session
    DEVICES = "devices"  # nothing -> list[DeviceInfo], the first device first
    STATUS = "status"  # nothing -> Status
    TOP = "top"  # Top -> Snapshot: see looking.py
    EXPLAIN = "explain"  # Explain -> Explained: see explaining.py
    WHY = "why"  # Why -> Explained, or nothing where a key is unknown
    FIND = "find"  # Find -> Found, or nothing where the name holds nothing of that key: see keeping.py
    KEEP = "keep"  # Keep -> nothing
    ARRAYS = "arrays"  # nothing -> Holdings
    FORGET = "forget"  # Forget -> list[KeptInfo]: those that are kept no longer
    ENTRIES = "entries"  # Match -> Listed
    REMOVE = "remove"  # Match -> list[str]: the keys of those removed
    SHOW = "show"  # Show -> Inspected, or nothing where the key is unknown: see looking.py
    PIN = "pin"  # Pin -> list[str]: the keys of those meant
    COLLECT = "collect"  # nothing -> int: deletes what the cache needs no longer, bytes freed
    STOP = "stop"  # nothing -> nothing: drain and end


Value = bytes
"""A value of the codec: of `codec.values`, or a tree of `trees.tree`."""


class Message(msgspec.Struct, array_like=True):
    """Base of all messages: fields in order, no names on the wire."""


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Base of what messages are made of, where it is compared or hashed."""


# ---- arrays


class Spec(Part, frozen=True):
    """What jit knows of an array without its value. `dtype` is JAX's name for it ("bfloat16", "key<fry>"); one without
    a sharding is on the first device, or wherever else it is needed.
    """

    shape: tuple[int, ...]
    dtype: str
    weak_type: bool = False
    sharding: Sharding | None = None


class Attached(Part, frozen=True, tag=1):
    """Stands for array bytes that go beside the frame, in the order in which these stand in it: behind it on the
    socket, or in the block that it names.
    """

    nbytes: int


# ---- failures


class Frame(Part, frozen=True):
    """One entry of a traceback, in the files of the client."""

    file: str
    line: int
    name: str


class Failure(Part, frozen=True, tag=2):
    """An exception as a value. `types` names its classes, the nearest first; a class of the user's own is an index
    into the capture. `arguments` rebuild it where they are plain values; so do `attributes`, as far as they can be
    sent. `context` is what was being handled; None where that is the cause as well, or nothing. One that is not final
    was raised by a trace, which the client may repeat.
    """

    types: tuple[Value, ...]
    text: str
    arguments: Value
    frames: tuple[Frame, ...]
    notes: tuple[str, ...] = ()
    cause: "Failure | None" = None
    attributes: tuple[tuple[str, Value], ...] = ()
    context: "Failure | None" = None
    is_alone: bool = False
    """Whether `from` was used, and the context is not to be shown."""
    is_final: bool = True


# ---- the handshake


class Hello(Message):
    """Who calls. `loaded` has the versions of those packages of the client that must agree with the daemon's."""

    protocol: int
    version: str
    python: str
    loaded: dict[str, str]
    token: bytes = b""  # of the session to go on with, or to join
    client: bytes = b""  # names whoever numbers Runs, across its connections


class Welcome(Message):
    """Who answers. Handles that this connection names start at `first_handle`. Another `process` than before may have
    gone on with the session: it may have to be asked again for programs.
    """

    protocol: int
    version: str
    python: str
    packages: dict[str, str]
    platform: str  # of the devices: "cpu", "cuda", ...
    pid: int
    token: bytes
    resumed: bool
    first_handle: int
    begun: int  # the number of the last Run of this client that the session has begun: none up to it is sent again
    lends: bool = False  # shared memory, where the socket can pass descriptors
    process: bytes = b""  # names this daemon among all that there have been
    lost: str = ""  # why the session of the token is not resumed, where the daemon knows


# ---- programs


class Signature(Message):
    """What a call specialises on: the tree of its arguments without the static ones, the leaves' specs, and the
    values of static arguments by position or name.
    """

    tree: Value
    leaves: tuple[Spec, ...]
    statics: tuple[tuple[int | str, Value], ...]
    donated: tuple[int, ...]  # positions among the leaves
    options: tuple[tuple[str, Value], ...]
    context: tuple[tuple[str, Value], ...]
    shardings: JitShardings | None = None


class Lookup(Message):
    """Ask for a program by what decides it. `packages` are those that the capture refers to; `locations` is where its
    code is written in the client's files by now, and decides nothing.
    """

    capture_key: str
    function_key: str
    packages: tuple[str, ...]
    signature: Signature
    locations: bytes = b""


class Upload(Message):
    """A part of a capture's payload, and where in it that starts."""

    capture_key: str
    start: int
    part: bytes


class Traced(Message):
    """A program that the client traced itself: the digest of its bytes, and its results."""

    key: str
    results: tuple[Spec, ...]
    tree: Value


class Prepare(Message):
    """Make the program of a lookup, out of the capture that was uploaded; or out of the program, if it is `traced`.
    `verify` asks for what the client compares with a trace of its own.
    """

    lookup: Lookup
    name: str
    where: str  # file and line of the function, for people
    traced: Traced | None = None
    parts: bytes = b""  # what the call is made of, for people: see explaining.py
    verify: bool = False


class Verified(Message):
    """A program as it was lowered, and the functions that it calls back."""

    text: str
    callbacks: tuple[str, ...]


class Warned(Part, frozen=True):
    """A warning: its class, and what it says."""

    category: Value
    text: str


class Escape(Part, frozen=True):
    """A value of a trace that an object of the capture keeps: that object's number among all that the capture makes,
    the name there, and the tree of the value. What is no array there has the spec of some array.
    """

    holder: int
    name: str
    tree: Value
    leaves: tuple[Spec, ...]


class Prepared(Message):
    """A program that the session holds: its name in calls, and what its results look like. One that `may_raise` calls
    back into Python, or is checked while it runs. `made` is what its trace made and `tree` names by negative positions.
    """

    executable: int
    results: tuple[Spec, ...]
    tree: Value
    donated: tuple[int, ...]  # positions among the leaves
    may_raise: bool
    seconds: dict[str, float]  # spent now on "load", "trace", "lower", "compile": empty for a hit
    warnings: tuple[Warned, ...] = ()  # of its trace and compilation, whenever that was
    verified: Verified | None = None  # where it was made now, and that was asked for
    escapes: tuple[Escape, ...] = ()  # from its trace
    made: bytes = b""


class Inspect(Message):
    """Ask what the compiler says of a program that the session holds: its "text", "costs" or "memory"."""

    executable: int
    what: str


class Inspected(Message):
    """What the compiler says of a program, as far as it was asked."""

    text: str = ""
    costs: dict[str, float] = {}
    memory: dict[str, int] = {}


# ---- calls


class Put(Message):
    """An array that is to live on the daemon, under the handle that the client names; what is spare, only where others
    need the room less.
    """

    spec: Spec
    value: bytes | Attached
    handle: int
    is_spare: bool = False


class Call(Message):
    """Run a program. An argument is a handle, the bytes of a small array, or stands for bytes that follow.
    Results are named `results`, `results` + 1, ... Handles in `drop` went before the call was made.
    """

    executable: int
    arguments: list[int | bytes | Attached]
    results: int
    drop: tuple[int, ...] = ()


class Run(Message):
    """Make calls, drop handles, put arrays, wait for handles, then send the values of some: in this order. The Runs of
    a client are numbered, across its connections.

    `block` holds the arrays beside this message, and is the daemon's; the answer says whether it comes back. `into` may
    be filled with the values; it is the client's again with the answer, whether they are in it or not. Where there is
    no `into`, a `block` that comes back may be filled with them.
    """

    calls: list[Call] = []
    drop: tuple[int, ...] = ()
    puts: list[Put] = []
    wait: tuple[int, ...] = ()
    fetch: tuple[int, ...] = ()
    number: int = 0
    block: int = 0
    into: int = 0


class Done(Message):
    """The answer to the Run of that number. A call that failed is named by its first result, or 0 where it has none:
    its results are failures from then on, and so is what is made of them.
    """

    number: int
    failures: list[tuple[int, Failure]] = []
    values: list[bytes | Attached | Failure] = []
    taken: list[tuple[int, int]] = []  # a call by its first result, and the leaf that it was given and used up
    shared: bool = False  # the values beside this message are in `into`, or else in `block`
    back: bool = False  # nothing on the daemon reads the block of arguments any more; otherwise it keeps the block


class Lease(Message):
    """Ask for a block of so many bytes. It is the client's to write and read until it gives it back."""

    nbytes: int


class Leased(Message):
    """The answer: a block, whose descriptor comes with this frame; or none, and arrays go over the socket."""

    block: int = 0
    capacity: int = 0


class Return(Message):
    """Blocks that the client holds no longer. Others may have those that are `free`; those that are `retired` may still
    be read by somebody, and are for nobody to write.
    """

    free: tuple[int, ...] = ()
    retired: tuple[int, ...] = ()


class Busy(Message):
    """Sent every second while an answer takes long, so that a silent daemon is known from a busy one."""

    phase: str
    seconds: float


# ---- looking inside


class Match(Message):
    """Which entries: those whose call key or function name starts with, or equals, `prefix`; all where it is empty.
    Of them, those whose key comes after `after`.
    """

    prefix: str = ""
    after: str = ""


class EntryInfo(Message):
    """A cached program, for people."""

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
    disk_bytes: int = 0  # 0: it is not on the disk
    in_memory: bool = False
    slowest: float = 0.0  # seconds of a call, by the last daemon that made more than one; 0: not known


class Listed(Message):
    """As many entries as one message holds, by their keys, and whether there are more after the last of them."""

    found: list[EntryInfo]
    more: bool


class DeviceInfo(Message):
    """A device of the daemon's."""

    kind: str
    platform: str
    memory_bytes: int | None


class Report(Message):
    """What the client did on its own since it last said so."""

    local_runs: int = 0
    client_traces: int = 0


class Status(Message):
    """The daemon's counters. The CLI prints them under these names."""

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
    shared_bytes: int  # of the memory that it shares with clients, or keeps to share
    lent_bytes: int  # of that, what clients have now
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
