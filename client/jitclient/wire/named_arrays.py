"""Messages about named arrays, which outlive their sessions, and about the use of the memory budget."""

from jitclient.wire.messages import Handles, Message, Packages, Specs, Value


class Find(Message):
    """Request for the arrays under a name, if their key is `key` or that is None.

    The session gets the arrays under consecutive handles from `first` on. `packages` are the packages that the function
    of the key refers to.
    """

    name: str
    key: str | None
    packages: Packages
    first: int
    # Seconds without use after which the name is removed.
    ttl: float | None


class FoundArrays(Message):
    """Content of a name. Some trees can be decoded only with the capture of the function that made them."""

    specs: Specs
    tree: Value


class Keep(Message):
    """Request to store the arrays of these handles under a name, replacing its content. An empty key never matches."""

    name: str
    key: str
    packages: Packages
    specs: Specs
    tree: Value
    label: str  # tree as text, for people
    handles: Handles
    ttl: float | None


class Forget(Message):
    """Request to remove a name. Handles of its arrays stay valid."""

    name: str


class KeptInfo(Message):
    """Content of a name, for people."""

    name: str
    label: str
    arrays: int
    nbytes: int
    created: float  # seconds since the epoch
    last_used: float
    ttl: float | None
    why_lost: str = ""  # why the arrays are lost, if they are


class Made(Message):
    """Arrays that the same function made, for people: its label, and where it is defined, if that is known."""

    label: str
    where: str
    arrays: int
    nbytes: int


class Owned(Message):
    """Arrays that a session owns, for people; an array that also has a name counts for the name only.

    `made` has the functions that made the most, the largest first.
    """

    pid: int
    program: str
    arrays: int
    nbytes: int
    made: list[Made] = []


class MemoryUse(Message):
    """Memory that holds arrays, with the bytes of these and their budget."""

    where: str
    nbytes: int
    most_nbytes: int


class Holdings(Message):
    """Owners of the arrays on the daemon, largest first, and the memory budget.

    `disk_nbytes` counts the bytes of arrays that an earlier daemon saved. If there are several memories, `memories`
    lists them; the other numbers are sums.
    """

    nbytes: int
    most_nbytes: int | None
    kept: list[KeptInfo]
    sessions: list[Owned]
    disk_nbytes: int = 0
    memories: list[MemoryUse] = []
