"""All exceptions of jitserver.

JitserverError
├── SettingsError (ValueError)         a JITSERVER_* variable, or JAX_PLATFORMS, has an invalid value
├── MissingPackage (ImportError)       a command needs a package that is not installed
├── CaptureError (TypeError)           a function cannot be captured, or a capture cannot be loaded
│   ├── AmbientInput                   a function reads something outside Python's objects (a file, the environment)
│   └── CaptureTooSlow                 a capture took longer than a trace in each process does
├── DaemonError (ConnectionError)
│   ├── DaemonUnavailable              no daemon answers, and none could be started
│   │   ├── DaemonHangs                the daemon did not answer for too long, and is asked again later
│   │   └── HostUnreachable            ssh does not reach the daemon's machine now
│   ├── DaemonLost                     the daemon exited during a request
│   │   ├── DaemonSilent               the daemon runs, but did not answer for too long
│   │   └── NotSent                    the daemon exited before the request was sent: nothing was executed
│   ├── DaemonDraining                 the daemon is stopping and accepts no new calls
│   ├── AddressTaken                   another daemon already serves at the address
│   └── Incompatible                   client and daemon differ in a version that matters, or in their devices
│       └── WrongUser                  the daemon belongs to another user
├── SessionBusy (RuntimeError)         a signal handler, destructor or callback made a request that its own call blocks
├── ProtocolError                      a peer broke the protocol
├── ProgramsDiffer (RuntimeError)      JITSERVER_VERIFY=always: a cached program differs from this process's own trace
├── CrashesDaemon (RuntimeError)       the daemon crashed repeatedly during work on this program
├── ArrayLost (RuntimeError)           the value of a handle no longer exists on the daemon
├── ArrayBudgetExceeded (MemoryError)  the daemon's memory budget of arrays is full
├── ProgramLost (RuntimeError)         a program was evicted from memory and from the disk
├── ArchiveRefused (ValueError)        a file is no archive of a cache, or was made with other versions
├── WorkerLost (RuntimeError)          the workers of a pool died while they ran this task, or none is left
└── RemoteError (RuntimeError)         an exception on the daemon or a worker, whose type this process has not loaded
"""

import collections.abc
import contextlib


class JitserverError(Exception):
    """Base class of all exceptions of jitserver."""


class SettingsError(JitserverError, ValueError):
    """Invalid value of a setting; the message names the variable and its valid values."""


class MissingPackage(JitserverError, ImportError):  # noqa: N818
    """Lack of a package that a command needs; the message says how to install it."""


class CaptureError(JitserverError, TypeError):
    """Failure to capture a function; the message names the object that prevents it and the path to that object."""


class AmbientInput(CaptureError):  # noqa: N818  (the glossary's word)
    """Read of an input outside Python's objects by a function: no capture can hold such an input."""


class CaptureTooSlow(CaptureError):  # noqa: N818
    """Capture that took longer than its budget, so that tracing the function in each process takes less."""


class DaemonError(JitserverError, ConnectionError):
    """Failure of the daemon to answer a request, for a reason outside the program."""


class DaemonUnavailable(DaemonError):  # noqa: N818
    """Lack of a daemon: none answers at the address, and none could be started."""


class DaemonHangs(DaemonUnavailable):
    """Lack of an answer from a running daemon. Its state is not lost, and the client asks it again later."""


class HostUnreachable(DaemonUnavailable):
    """Failure of ssh, Dask or Ray to reach a machine now; a later attempt may succeed. The message quotes them."""


class DaemonLost(DaemonError):  # noqa: N818
    """Exit of the daemon during a request."""

    may_repeat = True
    """Whether the request can be repeated without applying a change twice."""


class DaemonSilent(DaemonLost):
    """Lack of an answer from a running daemon for longer than a healthy daemon would need."""


class NotSent(DaemonLost):
    """Exit of the daemon before a whole request was sent, so that no part of the request was executed."""


class DaemonDraining(DaemonError):  # noqa: N818
    """Refusal of a daemon that is stopping: it finishes running calls and accepts no new ones."""


class AddressTaken(DaemonError):  # noqa: N818
    """Conflict over an address at which another daemon already serves."""


class Incompatible(DaemonError):  # noqa: N818
    """Difference between client and daemon in a version that matters, or in devices; the message names both sides."""

    is_of_daemon = False
    """Whether other functions of the process have the same reason, such as the daemon's version."""

    @classmethod
    def with_daemon(cls, text: str) -> "Incompatible":
        """Return the error for a daemon that no function of this process can use."""
        error = cls(text)
        error.is_of_daemon = True
        return error

    @classmethod
    def with_devices(cls, needed: int, found: int) -> "Incompatible":
        """Return the error for a daemon that has too few devices."""
        return cls(
            f"{needed} devices are needed, and the daemon has {found}. Use a smaller mesh, or a daemon with more (on "
            "the CPU: XLA_FLAGS=--xla_force_host_platform_device_count=N for both sides)"
        )


class WrongUser(Incompatible):
    """Daemon, or path of its socket, that belongs to another user; the message names the user."""

    @classmethod
    def at(cls, address: object, uid: int) -> "WrongUser":
        """Return the error for an address that belongs to the user `uid`."""
        return cls(
            f"{address} belongs to uid {uid}; a daemon serves one user. Unset JITSERVER_ADDRESS, or name a socket of "
            "your own"
        )


class SessionBusy(JitserverError, RuntimeError):  # noqa: N818
    """Request that the thread's own running call blocks.

    A signal handler or a destructor made the request during a call of the same thread, or a callback of a program over
    several devices called another such program.
    """


class ProtocolError(JitserverError):
    """Violation of this version's protocol by a peer."""


class ProgramsDiffer(JitserverError, RuntimeError):  # noqa: N818
    """Difference between a cached program and the function's own trace; the message says what to do."""


class CrashesDaemon(JitserverError, RuntimeError):  # noqa: N818
    """Refusal of a program because the daemon crashed repeatedly during work on it; the message says what to do."""


class ArrayLost(JitserverError, RuntimeError):  # noqa: N818
    """Loss of a handle's value on the daemon; the message gives the reason."""


class ArrayBudgetExceeded(JitserverError, MemoryError):  # noqa: N818
    """Lack of room in the daemon's memory budget of arrays; the message lists the owners of the arrays."""


class ProgramLost(JitserverError, RuntimeError):  # noqa: N818
    """Loss of a client's program, which was evicted from the daemon's memory and is no longer on disk."""


class ArchiveRefused(JitserverError, ValueError):  # noqa: N818
    """Refusal to import an archive of a cache; the message says what is wrong with the file."""


class WorkerLost(JitserverError, RuntimeError):  # noqa: N818
    """Loss of the workers of a pool: each one that ran this task died, or none is left; the message has the reason."""


class RemoteError(JitserverError, RuntimeError):
    """Exception on the daemon, or on a worker of a pool, whose type is not loaded in this process."""


@contextlib.contextmanager
def loading() -> collections.abc.Iterator[None]:
    """Raise DaemonUnavailable if the code inside cannot be loaded for lack of file descriptors or memory."""
    try:
        yield
    except (OSError, ImportError, MemoryError) as error:
        if isinstance(error, (JitserverError, ModuleNotFoundError)):
            raise
        raise DaemonUnavailable(f"jitclient cannot load its code: {str(error) or 'no memory is left'}") from error
