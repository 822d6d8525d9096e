"""Contract of the protocol: the messages on the wire, and the verbs and frames that carry them.

Verbs are rpyc requests `(verb, bytes) -> bytes`. Calls are frames of jitserver's own kinds on the same channel: the
client sends RUN; the daemon answers REPLY, and sends BUSY while it works on the answer (reply.py has the format of both
kinds of replies). During a call, CALLBACK asks the client to call one of its functions, and CALLED_BACK answers. LEASE
asks for shared memory, LEASED grants it, and RETURN returns it. While a profile is recorded, the client sends ANNOTATE
before and after the calls that its user annotates; nothing answers it.
"""

import enum
from typing import Annotated

import msgspec

from jitclient.wire.shardings import JitShardings, Sharding

PROTOCOL = 24
"""Version of the protocol, compared at the handshake; raised whenever a message changes in meaning or form."""

RUN, REPLY, BUSY, LEASE, LEASED, RETURN, CALLBACK, CALLED_BACK, ANNOTATE = 16, 17, 18, 19, 20, 21, 22, 23, 24
"""Kinds of frames, besides rpyc's own 1, 2 and 3."""

INLINE_BYTES = 64 << 10
"""Maximum size of an array inside a message; larger arrays are attached."""

UPLOAD_BYTES = 8 << 20
"""Size of the parts in which captures are uploaded."""

MAX_FRAME_BYTES = UPLOAD_BYTES + (1 << 20)
"""Maximum length of a frame; longer frames are refused before memory is allocated for them.

A decoded message takes up to twenty times its bytes: a list of arrays without dimensions, for example.
"""

MAX_ITEMS = 1 << 14
"""Maximum number of handles, arrays or names in a list of a message: each costs more than its bytes."""

MAX_CALLS = 128
"""Maximum number of calls in a Run."""

MAX_LISTS = 64
"""Maximum number of lists of names in a message."""

_MAX_PACKAGES = 1 << 10
_MAX_KEY_LENGTH = 256

FIRST_FRAME_BYTES = 64 << 10
"""Maximum length of a frame on a connection that has no session yet."""

MAX_CAPTURE_BYTES = 1 << 30
"""Maximum size of a capture; larger captures hold arrays that should be arguments."""


class Verb(enum.StrEnum):
    """Requests of a client, each with its message and answer."""

    HELLO = "hello"  # Hello -> Welcome
    LOOKUP = "lookup"  # Lookup -> Found
    UPLOAD = "upload"  # Upload -> nothing
    PREPARE = "prepare"  # Prepare -> Prepared
    SETTLE = "settle"  # Settle -> Settled
    LOAD = "load"  # Load -> Executable
    INSPECT = "inspect"  # Inspect -> Inspected
    REPORT = "report"  # Report -> nothing
    GOODBYE = "goodbye"  # nothing -> nothing: closes the session
    DEVICES = "devices"  # nothing -> list[DeviceInfo], the first device first
    STATUS = "status"  # nothing -> Status
    SNAPSHOT = "snapshot"  # nothing -> Snapshot: see introspection.py
    EXPLAIN = "explain"  # Explain -> Explained: see explaining.py
    WHY = "why"  # Why -> Explained, or nothing if a key is unknown
    FIND = "find"  # Find -> Found, or nothing without a match: see named_arrays.py
    KEEP = "keep"  # Keep -> nothing
    ARRAYS = "arrays"  # nothing -> Holdings
    FORGET = "forget"  # Forget -> list[KeptInfo]: the forgotten names
    ENTRIES = "entries"  # Match -> Listed
    REMOVE = "remove"  # Match -> list[str]: the keys of those removed
    SHOW = "show"  # Show -> Inspected, or nothing for an unknown key: see introspection.py
    RECORD = "record"  # Record -> nothing: see recording.py
    RECORDED = "recorded"  # int -> bytes: of an encoded Recorded, from there on; the first one ends the recording
    CLOCK = "clock"  # nothing -> int: the daemon's time in nanoseconds since the epoch
    MEMORY = "memory"  # nothing -> bytes: JAX's profile of the devices' memory, in the form of pprof
    PIN = "pin"  # Pin -> list[str]: the keys of the matching programs
    COLLECT = "collect"  # nothing -> int: collects garbage in the cache; bytes freed
    STOP = "stop"  # nothing -> nothing: drains the daemon and exits


Items = msgspec.Meta(max_length=MAX_ITEMS)
"""Annotation of a list in a message: its maximum length."""

Handles = Annotated[tuple[int, ...], Items]
Names = Annotated[tuple[str, ...], Items]
Packages = Annotated[tuple[str, ...], msgspec.Meta(max_length=_MAX_PACKAGES)]
Key = Annotated[str, msgspec.Meta(max_length=_MAX_KEY_LENGTH)]
Token = Annotated[bytes, msgspec.Meta(max_length=_MAX_KEY_LENGTH)]

Value = bytes
"""Value encoded by `capture.codec.values`, or tree encoded by `jaxside.tree`."""


class Message(msgspec.Struct, array_like=True):
    """Base class of messages: fields in order, without names on the wire."""


class Part(msgspec.Struct, array_like=True, frozen=True):
    """Base class of parts of messages that are compared or hashed."""


# ---- arrays


class Spec(Part, frozen=True):
    """Properties of an array that jit depends on, without its value.

    `dtype` is JAX's name ("bfloat16", "key<fry>"). An array without a sharding is uncommitted: it lives on the first
    device, or where it is needed.
    """

    shape: Annotated[tuple[int, ...], Items]
    dtype: str
    weak_type: bool = False
    sharding: Sharding | None = None


class Attached(Part, frozen=True, tag=1):
    """Placeholder of an attached array.

    Attachments follow in the order of their placeholders: after the frame on the socket, or in the block that the
    message names.
    """

    nbytes: int


Specs = Annotated[tuple[Spec, ...], Items]


# ---- failures


class Failure(Part, frozen=True, tag=2):
    """Exception as a value.

    `types` names its classes, most derived first; a user's class is an index into the capture. `arguments` and
    `attributes` rebuild the exception, as far as they can be sent. A failure that is not final was raised by a trace,
    which the client may repeat.
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
    """Introduction of the client. `loaded` has the versions of loaded packages that must match the daemon's."""

    protocol: int
    version: str
    python: str
    loaded: Annotated[dict[str, str], Items]
    token: Token = b""  # of the session to resume or join
    # Identifies the process that numbers Runs, across its connections.
    client: Token = b""
    # Only of a client on another machine, for which the process at the socket's other end is not the client.
    program: str = ""


class Welcome(Message):
    """Introduction of the daemon.

    New handles of this connection start at `first_handle`. If `process` has changed, another daemon took the session
    over, and must be asked for programs again.
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
    # Number of this client's last Run that was begun: only later ones are resent.
    begun: int
    # Whether the daemon lends shared memory, if the socket can pass file descriptors.
    lends: bool = False
    process: bytes = b""  # identifies this daemon process
    # Reason why the session of the token is not resumed, if the daemon knows it.
    lost: str = ""
    installed: dict[str, str] = {}  # for a client on another machine: installed packages
    settings: dict[str, str] = {}  # the daemon's settings of the whole process
    # Whether the results of a call are computed when it is answered, as on the CPU.
    finishes_calls: bool = True
    devices: int = 0  # their number


# ---- programs


class Signature(Message):
    """Inputs that jit specialises on.

    `tree` is that of the arguments without static ones, `leaves` are the specs of its leaves, and `statics` are the
    static values by position or name.
    """

    tree: Value
    leaves: Specs
    statics: Annotated[tuple[tuple[int | str, Value], ...], Items]
    donated: Annotated[tuple[int, ...], Items]  # positions among the leaves
    options: Annotated[tuple[tuple[str, Value], ...], Items]
    context: Annotated[tuple[tuple[str, Value], ...], Items]
    shardings: JitShardings | None = None


UNOBSERVED = "<unobserved> "
"""Beginning of the name in a manifest that says why a trace was not observed."""


class Manifest(Part, frozen=True):
    """Data outside the capture that a trace read: the names, and the state of each."""

    names: Names = ()
    state: Annotated[tuple[bytes, ...], Items] = ()

    @property
    def why_of_one_process(self) -> str:
        """Return why no other process can have this manifest, as the trace was not observed; empty if others can."""
        return next((name.removeprefix(UNOBSERVED) for name in self.names if name.startswith(UNOBSERVED)), "")


class Lookup(Message):
    """Request for a program by its key.

    `packages` are the packages that the capture refers to. `locations` are the current places of its code in the
    client's files, which are not part of the key. `manifests` has the state of this process for the names that the
    daemon asked for. An `unverified` program was not compared with a trace of its client.
    """

    capture_key: Key
    function_key: Key
    packages: Packages
    signature: Signature
    locations: bytes = b""
    manifests: Annotated[tuple[Manifest, ...], msgspec.Meta(max_length=MAX_LISTS)] = ()
    unverified: bool = False


class Upload(Message):
    """Part of a capture's payload, from the offset `start` on."""

    capture_key: Key
    start: int
    part: bytes


class Evidence(Part, frozen=True):
    """Summary of a trace, for comparison with another trace of the function.

    `digest` covers the lowered text and the callbacks. `text` and `callbacks` hold them, unless they are long.
    """

    digest: bytes = b""
    text: str = ""
    callbacks: Names = ()
    # Digest without the order, if the program was settled by a trace that differs only in its order.
    order_free: bytes = b""


class ForeignFunction(Part, frozen=True):
    """Foreign function (`jax.ffi`) of a program, and the place of its code.

    `library` is the path of a library from beside the installed `module`; without a module, its whole path. Both are
    empty if the place is unknown. `symbols` has each stage of the call, and the symbol in the library, or "".
    """

    name: str
    module: str = ""
    library: str = ""
    symbols: Annotated[tuple[tuple[str, str], ...], msgspec.Meta(max_length=MAX_LISTS)] = ()


class TracedProgram(Message):
    """Program that the client traced: the digest of its bytes, its results, and the evidence of the trace.

    A program that only processes with the same trace find needs no evidence. `foreign` are the foreign functions that
    the daemon must register. `seconds` are those of the trace that processes which find the program save.
    """

    key: Key
    results: Specs
    tree: Value
    evidence: Evidence = Evidence()
    foreign: Annotated[tuple[ForeignFunction, ...], Items] = ()
    seconds: float = 0.0


class Prepare(Message):
    """Request to compile the program of a look-up.

    The daemon compiles the uploaded capture or, if `traced` is given, the uploaded program; `last` is its last part, if
    that is short. Without a `manifest`, other processes find the program only after a Settle.

    For people are `where`, the file and line of the function; `names`, those of the arguments' leaves and of the static
    arguments; and `inputs`, the label, the text and the digest of each declared input.
    """

    lookup: Lookup
    name: str
    where: str
    traced: TracedProgram | None = None
    names: Annotated[tuple[str, ...], msgspec.Meta(max_length=2 * MAX_ITEMS)] = ()
    inputs: Annotated[tuple[tuple[str, str, bytes], ...], Items] = ()
    manifest: Manifest | None = None
    last: Upload | None = None


class Settle(Message):
    """Result of the client's comparison of its own trace with the prepared program.

    If the traces agree, processes with this manifest find the program from now on. They also agree if the program's
    trace has the digest `order_free` without its order, which the client sends if nothing else differs. If there is a
    reason `why` they do not, functions with this manifest are traced in each process. Else this is only a question.
    """

    lookup: Lookup
    name: str
    manifest: Manifest
    agrees: bool = False
    why: str = ""
    order_free: bytes = b""


class Settled(Message):
    """Whether traces agree; if they do not, the names in the client's manifest whose state differs in the daemon.

    A differing name may explain why client and daemon trace different programs. If the daemon no longer has the trace,
    `agrees` is None.
    """

    agrees: bool | None
    differing: Names = ()


class Slot(Part, frozen=True):
    """Function that a program calls back: its results, and whether a token precedes arguments and results."""

    results: tuple[Spec, ...]
    takes_token: bool = False


class Phase(Part, frozen=True):
    """Phase of the daemon's work on a request: when it began, in seconds since the request came, and its duration."""

    name: str
    start: float
    seconds: float


class Prepared(Message):
    """Program of the session: its number in calls, and the specs and tree of its results.

    A program that `may_raise` calls back into Python, or is checked while it runs. `made` has the objects that its
    trace made, to which `tree` refers by negative positions. `callbacks` likewise has the functions of its `slots`.
    """

    executable: int
    results: tuple[Spec, ...]
    tree: Value
    donated: tuple[int, ...]  # positions among the leaves
    may_raise: bool
    # Seconds spent on this request in "load", "trace", "lower" and "compile"; empty for a hit.
    seconds: dict[str, float]
    evidence: Evidence = Evidence()  # of the trace behind the program
    made: bytes = b""
    slots: tuple[Slot, ...] = ()
    callbacks: bytes = b""
    # A program with effects must not run twice.
    has_effects: bool = False
    # "made"; "remade": from the capture on disk, because the disk has no executable; for a hit "memory",
    # "disk" or "share": the lab's cache.
    level: str = "made"
    saved: float = 0.0  # seconds saved by a hit
    saved_compiling: float = 0.0  # those of them that compiling took, which JAX's own cache would save as well
    why: str = ""  # why a program was remade
    foreign: tuple[ForeignFunction, ...] = ()
    phases: tuple[Phase, ...] = ()  # of the work on this request


class Found(Message):
    """Answer to a Lookup: a program, or lists of names whose state selects the program, or neither."""

    prepared: Prepared | None = None
    names: tuple[tuple[str, ...], ...] = ()


class Load(Message):
    """Request for the executable of a program of the session, which the client will run itself."""

    executable: int
    max_bytes: int


class Executable(Message):
    """Answer to a Load: the size of the executable, 0 if it cannot be serialized, and its bytes, if they are few."""

    nbytes: int
    data: bytes = b""


class Inspect(Message):
    """Request for the compiler's "text", "costs" or "memory" of a program of the session."""

    executable: int
    what: str


class Inspected(Message):
    """Answer of the compiler to an Inspect; fields that were not asked for are empty."""

    text: str = ""
    costs: dict[str, float] = {}
    memory: dict[str, int] = {}


# ---- calls


class Put(Message):
    """Request to put an array, or that of a handle, where its spec says, under a handle that the client chose.

    An array that `is_spare` is refused if memory is scarce. An array without a sharding goes to the default device.
    """

    spec: Spec
    value: int | bytes | Attached
    handle: int
    is_spare: bool = False
    default: Sharding | None = None


class Call(Message):
    """Request to run a program.

    An argument is a handle, the bytes of a small array, or the placeholder of an attachment. The results get the
    handles `results`, `results` + 1, ... Handles in `drop` are dropped before the call.
    """

    executable: int
    arguments: Annotated[list[int | bytes | Attached], Items]
    results: int
    drop: Handles = ()


class Run(Message):
    """Request to make calls, drop handles, put arrays, wait for handles, and fetch values, in this order.

    A client numbers its Runs across its connections. `block` is the number of the shared memory block that has the
    attachments; it passes to the daemon, and the answer says whether it comes back. The daemon may fill the block
    `into` with attached values; that block always comes back with the answer. Without `into`, the daemon may fill a
    `block` that comes back.
    """

    calls: Annotated[list[Call], msgspec.Meta(max_length=MAX_CALLS)] = []
    drop: Handles = ()
    puts: Annotated[list[Put], Items] = []
    wait: Handles = ()
    fetch: Handles = ()
    number: int = 0
    block: int = 0
    into: int = 0


class Callback(Message):
    """Request to call the function of a slot of the program that runs, with arrays of these specs.

    The daemon numbers callbacks on each connection. If there are results, it waits for the answer; otherwise the
    program continues.
    """

    number: int
    slot: int
    specs: list[Spec]
    arguments: list[bytes | Attached]


class CalledBack(Message):
    """Results of the client's function. If it `failed`, the Run fails as well: only the client has the exception."""

    number: int
    results: Annotated[list[bytes | Attached], Items] = []
    failed: bool = False


class Lease(Message):
    """Request for a block of shared memory of `nbytes` bytes. The client holds the block until it returns it."""

    nbytes: int


class Leased(Message):
    """Answer to a Lease: a block, whose file descriptor comes with this frame, or 0; then arrays go over the socket."""

    block: int = 0
    capacity: int = 0


class Return(Message):
    """Return of blocks to the daemon.

    The blocks in `free` may be leased again. The `retired` blocks may still have readers and must not be written again.
    """

    free: Handles = ()
    retired: Handles = ()


class Busy(Message):
    """Sign of life, sent every second while an answer takes long: distinguishes a busy daemon from a hanging one."""

    phase: str
    seconds: float


class DeviceInfo(Message):
    """Device of the daemon, with its memory."""

    kind: str
    platform: str
    memory_bytes: int | None


class Report(Message):
    """Counts of the client's work without the daemon since its last report, and what it cannot call any more.

    `released` has the numbers of programs, each once for each answer that named it.
    """

    local_runs: int = 0
    client_traces: int = 0
    released: Handles = ()
