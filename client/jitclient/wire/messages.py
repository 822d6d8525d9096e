"""The contract: the messages on the wire, and the verbs and frames that carry them.

Verbs are rpyc requests `(verb, bytes) -> bytes`. Calls are frames of our own kinds on the same channel: the client
sends RUN, the daemon answers DONE, and sends BUSY while it works on an answer. Meanwhile CALLBACK has the client call a
function of its own, and CALLED_BACK answers it. LEASE asks for shared memory, LEASED
grants it, and RETURN returns it.
"""

import enum

import msgspec

from jitclient.wire.shardings import JitShardings, Sharding

PROTOCOL = 11
"""Compared at the handshake; raised whenever a message changes in meaning or form."""

RUN, DONE, BUSY, LEASE, LEASED, RETURN, CALLBACK, CALLED_BACK = 16, 17, 18, 19, 20, 21, 22, 23
"""Kinds of frames, besides rpyc's own 1, 2 and 3."""

INLINE_BYTES = 64 << 10
"""Arrays up to this size are part of the message; larger ones are attached."""

MAX_FRAME_BYTES = 16 << 20
"""Longer frames are refused before memory is allocated for them."""

FIRST_FRAME_BYTES = 64 << 10
"""The same, on a connection without a session."""

UPLOAD_BYTES = 8 << 20
"""Captures are uploaded in parts of this size."""

MOST_CAPTURE_BYTES = 1 << 30
"""Larger captures are refused: they hold arrays that should be arguments."""


OK, FAILED = b"\0", b"\1"
"""The first byte of a verb's answer: its message follows, or a Failure."""


class Verb(enum.StrEnum):
    """What a client can ask for, each with its message and answer."""

    HELLO = "hello"  # Hello -> Welcome
    LOOKUP = "lookup"  # Lookup -> Found
    UPLOAD = "upload"  # Upload -> nothing
    PREPARE = "prepare"  # Prepare -> Prepared
    ORDER_FREE = "order_free"  # Lookup -> bytes: see jaxside/evidence.py; nothing if it has no such trace
    STATE = "state"  # State -> list[str]: the names
    SETTLE = "settle"  # Settle -> nothing
    INSPECT = "inspect"  # Inspect -> Inspected
    REPORT = "report"  # Report -> nothing
    GOODBYE = "goodbye"  # nothing -> nothing: ends the session
    DEVICES = "devices"  # nothing -> list[DeviceInfo], the first device first
    STATUS = "status"  # nothing -> Status
    TOP = "top"  # Top -> Snapshot: see introspection.py
    EXPLAIN = "explain"  # Explain -> Explained: see explaining.py
    WHY = "why"  # Why -> Explained, or nothing if a key is unknown
    FIND = "find"  # Find -> Found, or nothing if the name or key does not match: see named_arrays.py
    KEEP = "keep"  # Keep -> nothing
    ARRAYS = "arrays"  # nothing -> Holdings
    FORGET = "forget"  # Forget -> list[KeptInfo]: the forgotten names
    ENTRIES = "entries"  # Match -> Listed
    REMOVE = "remove"  # Match -> list[str]: the keys of those removed
    SHOW = "show"  # Show -> Inspected, or nothing if the key is unknown: see introspection.py
    PIN = "pin"  # Pin -> list[str]: the keys of the matching programs
    COLLECT = "collect"  # nothing -> int: collect garbage in the cache; bytes freed
    STOP = "stop"  # nothing -> nothing: drain and end


Value = bytes
"""A value encoded by `codec.values`, or a tree by `trees.tree`."""


class Message(msgspec.Struct, array_like=True):
    """Base class of messages: fields in order, without names on the wire."""


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Base class of parts of messages that are compared or hashed."""


# ---- arrays


class Spec(Part, frozen=True):
    """What jit knows of an array without its value. `dtype` is JAX's name ("bfloat16", "key<fry>"). An array without a
    sharding is uncommitted: on the first device, or where it is needed.
    """

    shape: tuple[int, ...]
    dtype: str
    weak_type: bool = False
    sharding: Sharding | None = None


class Attached(Part, frozen=True, tag=1):
    """Stands for an attached array. Attachments are in the order of their stand-ins: after the frame on the socket, or
    in the block that the message names.
    """

    nbytes: int


# ---- failures


class Failure(Part, frozen=True, tag=2):
    """An exception as a value. `types` names its classes, most derived first; a class of the user's is an index into
    the capture. `arguments` and `attributes` rebuild it, as far as they can be sent. One that is not final was raised
    by a trace, which the client may repeat.
    """

    types: tuple[Value, ...]
    text: str
    arguments: Value
    notes: tuple[str, ...] = ()
    cause: "Failure | None" = None
    attributes: tuple[tuple[str, Value], ...] = ()
    is_final: bool = True


# ---- the handshake


class Hello(Message):
    """The client. `loaded` has the versions of loaded packages that must match the daemon's."""

    protocol: int
    version: str
    python: str
    loaded: dict[str, str]
    token: bytes = b""  # of the session to resume or join
    client: bytes = b""  # identifies the process that numbers Runs, across its connections
    program: str = ""  # of a client on another machine: the process at the other end of the socket is not the client


class Welcome(Message):
    """The daemon. New handles of this connection start at `first_handle`. If `process` has changed, another daemon took
    the session over, and must be asked for programs again.
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
    begun: int  # number of the last Run of this client that was begun: only later ones are resent
    lends: bool = False  # shared memory, if the socket supports descriptors
    process: bytes = b""  # identifies this daemon process
    lost: str = ""  # why the session of the token is not resumed, if the daemon knows
    installed: dict[str, str] = {}  # for a client on another machine: the packages here


# ---- programs


class Signature(Message):
    """What jit specialises on: the tree of the arguments without static ones, the specs of its leaves, and the static
    values by position or name.
    """

    tree: Value
    leaves: tuple[Spec, ...]
    statics: tuple[tuple[int | str, Value], ...]
    donated: tuple[int, ...]  # positions among the leaves
    options: tuple[tuple[str, Value], ...]
    context: tuple[tuple[str, Value], ...]
    shardings: JitShardings | None = None


class Manifest(Part, frozen=True):
    """What a trace read outside of its capture: the names, and one digest of what they held."""

    names: tuple[str, ...] = ()
    state: bytes = b""


class Lookup(Message):
    """Ask for a program by its key. `packages` are those that the capture refers to; `locations` are the current places
    of its code in the client's files, which are not part of the key. `manifests` has the state of this process for the
    names that the daemon asked for. A program that is `unverified` was compared with no trace of its client's.
    """

    capture_key: str
    function_key: str
    packages: tuple[str, ...]
    signature: Signature
    locations: bytes = b""
    manifests: tuple[Manifest, ...] = ()
    unverified: bool = False


class Upload(Message):
    """A part of a capture's payload, from the offset `start` on."""

    capture_key: str
    start: int
    part: bytes


class Traced(Message):
    """A program that the client traced: the digest of its bytes, and its results."""

    key: str
    results: tuple[Spec, ...]
    tree: Value


class Prepare(Message):
    """Compile the program of a lookup from the uploaded capture or, if it is `traced`, from the uploaded program.
    Without a `manifest`, no other process finds the program before a Settle. The function is traced `anew` to compare
    traces, though its program may be there.
    """

    lookup: Lookup
    name: str
    where: str  # file and line of the function, for people
    traced: Traced | None = None
    parts: bytes = b""  # the parts of the key, for people: see explaining.py
    manifest: Manifest | None = None
    anew: bool = False


class Settle(Message):
    """The client's own trace agreed with the prepared program: processes with this manifest find it from now on. Or, if
    there is a reason `why` not, functions with this manifest are traced in each process. `state` has the digest of each
    name of the manifest; `order_free` that of the trace, if only the order differed.
    """

    lookup: Lookup
    name: str
    manifest: Manifest
    why: str = ""
    state: tuple[bytes, ...] = ()
    order_free: bytes = b""


class State(Message):
    """The digests of names in the client. Ask which of them differ in the daemon, and so may explain why the two trace
    different programs.
    """

    names: tuple[str, ...]
    state: tuple[bytes, ...]


class Evidence(Part, frozen=True):
    """What a trace made, to compare it with another trace of the function: the digest of the lowered text and of the
    callbacks; and these, unless they are long.
    """

    digest: bytes = b""
    text: str = ""
    callbacks: tuple[str, ...] = ()
    order_free: bytes = b""  # the digest without the order, if only that differed from the trace of the client


class Slot(Part, frozen=True):
    """A function that a program calls back: what it returns, and whether a token comes before arguments and results."""

    results: tuple[Spec, ...]
    takes_token: bool = False


class Prepared(Message):
    """A program of the session: its number in calls, and the specs and tree of its results. One that `may_raise` calls
    back into Python, or is checked while it runs. `made` has the objects that its trace made, to which `tree` refers by
    negative positions; `callbacks` has the functions of its `slots`, likewise.
    """

    executable: int
    results: tuple[Spec, ...]
    tree: Value
    donated: tuple[int, ...]  # positions among the leaves
    may_raise: bool
    seconds: dict[str, float]  # spent now on "load", "trace", "lower", "compile"; empty for a hit
    evidence: Evidence = Evidence()  # of the trace that it was made from
    made: bytes = b""
    slots: tuple[Slot, ...] = ()
    callbacks: bytes = b""
    has_effects: bool = False  # so that it must not run twice
    level: str = "made"  # or where it was found: in "memory", or on the "disk"
    saved: float = 0.0  # seconds, by finding it


class Found(Message):
    """The answer to a Lookup: a program; or lists of names, whose state decides which one it is; or neither."""

    prepared: Prepared | None = None
    names: tuple[tuple[str, ...], ...] = ()


class Inspect(Message):
    """Ask the compiler for the "text", "costs" or "memory" of a program of the session."""

    executable: int
    what: str


class Inspected(Message):
    """The compiler's answer, as far as it was asked."""

    text: str = ""
    costs: dict[str, float] = {}
    memory: dict[str, int] = {}


# ---- calls


class Put(Message):
    """Put an array, or one of a handle, where its spec says, under a handle that the client chose. A spare one is
    refused if memory is scarce. One without a sharding goes to the default device.
    """

    spec: Spec
    value: int | bytes | Attached
    handle: int
    is_spare: bool = False
    default: Sharding | None = None


class Call(Message):
    """Run a program. An argument is a handle, the bytes of a small array, or stands for an attachment. The results get
    the handles `results`, `results` + 1, ... Handles in `drop` are dropped before the call.
    """

    executable: int
    arguments: list[int | bytes | Attached]
    results: int
    drop: tuple[int, ...] = ()


class Run(Message):
    """Make calls, drop handles, put arrays, wait for handles, and fetch values, in this order. A client numbers its
    Runs across its connections.

    `block` has the attachments, and passes to the daemon; the answer says whether it returns. `into` may be filled with
    attached values, and returns with the answer in any case. Without `into`, a `block` that returns may be filled.
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
    """The answer to the Run of that number. A failed call is identified by its first result, or 0 if it has none. Its
    results raise its failure from then on, and so do results computed from them.
    """

    number: int
    failures: list[tuple[int, Failure]] = []
    values: list[bytes | Attached | Failure] = []
    taken: list[tuple[int, int]] = []  # a call by its first result, and a donated leaf that it used
    shared: bool = False  # the attached values are in `into` or, without it, in `block`
    back: bool = False  # whether `block` returns; otherwise arrays on the daemon still use it


class Callback(Message):
    """Call the function of a slot of the program that runs now, with arrays of these specs. The daemon numbers them on
    each connection. It waits for the answer if there are results; otherwise the program goes on.
    """

    number: int
    slot: int
    specs: list[Spec]
    arguments: list[bytes | Attached]


class CalledBack(Message):
    """What the function returned. If it `failed`, so does the run: only the client knows the exception."""

    number: int
    results: list[bytes | Attached] = []
    failed: bool = False


class Lease(Message):
    """Ask for a block of shared memory for so many bytes. The client has it until it returns it."""

    nbytes: int


class Leased(Message):
    """The answer: a block, whose descriptor comes with this frame; or none, and arrays are sent over the socket."""

    block: int = 0
    capacity: int = 0


class Return(Message):
    """Return blocks. Those that are `free` may be leased again; `retired` ones may still have readers, and must not be
    written again.
    """

    free: tuple[int, ...] = ()
    retired: tuple[int, ...] = ()


class Busy(Message):
    """Sent every second while an answer takes long, to distinguish a busy daemon from a hanging one."""

    phase: str
    seconds: float


# ---- introspection


class Match(Message):
    """Select the entries whose call key or function name starts with, or equals, `prefix`, and of those the ones whose
    key comes after `after`. An empty `prefix` selects all.
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
    disk_bytes: int = 0  # 0: not on disk
    in_memory: bool = False
    slowest: float = 0.0  # seconds of a call, on the last daemon that made more than one; 0: unknown
    base: str = ""  # the call key without the manifest
    names: tuple[str, ...] = ()  # in the manifest


class Listed(Message):
    """As many entries as fit into one message, in the order of their keys, and whether there are more."""

    found: list[EntryInfo]
    more: bool


class DeviceInfo(Message):
    """A device of the daemon."""

    kind: str
    platform: str
    memory_bytes: int | None


class Report(Message):
    """What the client did without the daemon since its last report."""

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
    shared_bytes: int  # of shared memory, leased or kept for later leases
    lent_bytes: int  # of that, leased now
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
    """Named trees of arrays."""
    lost_names: tuple[str, ...] = ()
    """Names whose trees a daemon could not save or load."""
    abandoned: int = 0  # calls that still run, and whose clients have gone
