"""Messages between driver and worker. The bodies of their frames are pickles."""

import msgspec

BEAT_SECONDS = 1.0
"""Seconds after which each side gives a sign of life."""

GREETING = b"\0jitserver pool-worker\n"
"""First bytes of a worker, after the output of the remote shell's start-up files."""


class Hello(msgspec.Struct, tag=True):
    """First message of a worker, before anything is pickled.

    Attributes:
        pid: process id.
        host: name of its machine.
        versions: version of Python, and of each package that must agree, by name.
    """

    pid: int
    host: str
    versions: dict[str, str]


class Begin(msgspec.Struct, tag=True):
    """First message to a worker. Body: the initializer as a function without arguments, or nothing.

    Attributes:
        modules: top-level names of the program's modules, which the worker imports from the driver.
        program: path of the driver's script; empty if it has none.
    """

    modules: list[str]
    program: str


class Modules(msgspec.Struct, tag=True):
    """Names as in `Begin`, after the program has imported more modules."""

    modules: list[str]


class Begun(msgspec.Struct, tag=True):
    """Answer to `Begin`. Body: the outcome of the initializer."""


class Function(msgspec.Struct, tag=True):
    """Function that the next `Calls` may name. Body: its pickle.

    Attributes:
        digest: digest of the pickle.
        forget: digest of a function that the worker can forget.
    """

    digest: bytes
    forget: bytes | None


class Calls(msgspec.Struct, tag=True):
    """Calls of one function. Body: a list of (arguments, keyword arguments).

    Attributes:
        function: digest of the function.
        count: number of calls.
    """

    function: bytes
    count: int


class Report(msgspec.Struct, tag=True):
    """Outcomes of calls since the last report, in order; a sign of life if there are none. Body: list of outcomes.

    Attributes:
        seconds: seconds that these calls took.
        unstarted: number of calls that the worker gives back, because the one before them takes long.
        is_last: whether the worker waits for new calls.
    """

    seconds: float = 0.0
    unstarted: int = 0
    is_last: bool = False


class Unreadable(msgspec.Struct, tag=True):
    """Arguments that the worker could not unpickle together, so that each call should come alone."""


class Wanted(msgspec.Struct, tag=True):
    """Module that the worker imports and does not have."""

    name: str


class Source(msgspec.Struct, tag=True):
    """Source of a module of the program. Body: the text of its file, if that is Python.

    Attributes:
        name: full name of the module.
        found: whether the program has such a module.
        is_package: whether the module is a package.
        path: its file in the driver; empty for a namespace package.
        failure: why the driver does not send the source that it has.
    """

    name: str
    found: bool = False
    is_package: bool = False
    path: str = ""
    failure: str = ""


class Alive(msgspec.Struct, tag=True):
    """Sign of life of the driver."""


class End(msgspec.Struct, tag=True):
    """Request to exit as a program that has finished."""


FromWorker = Hello | Begun | Report | Unreadable | Wanted
ToWorker = Begin | Modules | Function | Calls | Source | Alive | End
