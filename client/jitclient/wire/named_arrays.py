"""Messages about named arrays, which outlive their sessions, and about the use of the memory budget."""

from jitclient.wire.messages import Message, Spec, Value


class Find(Message):
    """Ask for the arrays that a name holds, if their key is `key` or that is None; the session gets them under
    consecutive handles from `first` on. `packages` are those that the function of the key refers to.
    """

    name: str
    key: str | None
    packages: tuple[str, ...]
    first: int
    ttl: float | None  # seconds without use after which the name is forgotten


class Found(Message):
    """What a name holds. Some trees can be decoded only with the capture of the function that made them."""

    specs: tuple[Spec, ...]
    tree: Value


class Keep(Message):
    """Have a name hold the arrays of these handles instead of what it held. An empty key never matches."""

    name: str
    key: str
    packages: tuple[str, ...]
    specs: tuple[Spec, ...]
    tree: Value
    label: str  # the tree, for people
    handles: tuple[int, ...]
    ttl: float | None


class Forget(Message):
    """Forget a name. Handles of its arrays stay valid."""

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
    why_lost: str = ""  # why it holds nothing, if so


class Owned(Message):
    """What a session owns, for people; arrays that also have a name count for the name."""

    pid: int
    program: str
    arrays: int
    nbytes: int


class Holdings(Message):
    """Who holds the arrays on the daemon, largest first, and the memory budget. `disk_nbytes` are those of arrays that
    an earlier daemon saved.
    """

    nbytes: int
    most_nbytes: int | None
    kept: list[KeptInfo]
    sessions: list[Owned]
    disk_nbytes: int = 0
