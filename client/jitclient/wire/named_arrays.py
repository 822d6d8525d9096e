"""Messages about arrays that outlive their sessions, under a name; and about who holds what."""

from jitclient.wire.messages import Message, Spec, Value


class Find(Message):
    """Ask for the arrays that a name holds, if they are those of `key`, or any where that is None; the session then has
    them under consecutive handles. `packages` are those that the function of that key refers to.
    """

    name: str
    key: str | None
    packages: tuple[str, ...]
    first: int
    ttl: float | None  # seconds without a use after which the name is forgotten


class Found(Message):
    """What a name holds. `tree` may mean something to the capture of the function only that made it."""

    specs: tuple[Spec, ...]
    tree: Value


class Keep(Message):
    """Let a name hold the arrays of these handles, and nothing else any more. An empty key is that of nothing."""

    name: str
    key: str
    packages: tuple[str, ...]
    specs: tuple[Spec, ...]
    tree: Value
    label: str  # the tree, for people
    handles: tuple[int, ...]
    ttl: float | None


class Forget(Message):
    """A name that is to hold nothing any more. Handles on its arrays live on."""

    name: str


class KeptInfo(Message):
    """What a name holds, for people."""

    name: str
    label: str
    arrays: int
    nbytes: int
    created: float  # seconds since the epoch
    last_used: float
    ttl: float | None


class Owned(Message):
    """What a session owns, for people: arrays that a name holds too are the name's."""

    pid: int
    program: str
    arrays: int
    nbytes: int


class Holdings(Message):
    """Who holds the arrays that live on the daemon, the largest first, and how many bytes there may be."""

    nbytes: int
    most_nbytes: int | None
    kept: list[KeptInfo]
    sessions: list[Owned]
