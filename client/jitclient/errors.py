"""All exceptions of jitserver.

JitserverError
├── SettingsError (ValueError)         a JITSERVER_* variable, or JAX_PLATFORMS, has an invalid value
├── CaptureError (TypeError)           a function cannot be captured, or a capture cannot be loaded
│   └── AmbientInput                   it reads something outside Python's objects (a file, the environment)
├── DaemonError (ConnectionError)
│   ├── DaemonUnavailable              no daemon answers, and none could be started
│   │   ├── DaemonHangs                the daemon did not answer for too long, and is asked again later
│   │   └── HostUnreachable            ssh does not reach the daemon's machine now
│   ├── DaemonLost                     the daemon ended during a request
│   │   ├── DaemonSilent               the daemon runs, but did not answer for too long
│   │   └── NotSent                    the daemon ended before the request was sent: nothing was done
│   ├── DaemonDraining                 the daemon is stopping and takes no new calls
│   ├── AddressTaken                   another daemon already serves at the address
│   └── Incompatible                   client and daemon differ in a version that matters, or in their devices
├── SessionBusy (RuntimeError)         a signal handler, destructor or callback asked for what its own call blocks
├── ProtocolError                      a peer broke the protocol
├── ProgramsDiffer (RuntimeError)      JITSERVER_VERIFY=always: a program was found that this process does not trace
├── CrashesDaemon (RuntimeError)       the daemon died repeatedly during work on this program
├── ArrayLost (RuntimeError)           the value of a handle no longer exists on the daemon
├── ArrayBudgetExceeded (MemoryError)  the daemon's memory budget of arrays is full
├── ProgramLost (RuntimeError)         a program was evicted from memory and from the disk
└── RemoteError (RuntimeError)         an exception on the daemon whose type this process has not loaded
"""

import collections.abc
import contextlib


class JitserverError(Exception):
    """The base class of all exceptions of jitserver."""


class SettingsError(JitserverError, ValueError):
    """A setting has an invalid value; the message names the variable and its valid values."""


class CaptureError(JitserverError, TypeError):
    """A function cannot be captured; the message says which object prevents it and how it is reached."""


class AmbientInput(CaptureError):  # noqa: N818  (the glossary's word)
    """A function reads something outside Python's objects, which no capture can hold."""


class DaemonError(JitserverError, ConnectionError):
    """The daemon could not answer a request, for a reason outside the program."""


class DaemonUnavailable(DaemonError):  # noqa: N818
    """No daemon answers at the address, and none could be started."""


class DaemonHangs(DaemonUnavailable):
    """The daemon runs, but did not answer for too long; what it holds is not lost, and it is asked again later."""


class HostUnreachable(DaemonUnavailable):
    """ssh does not reach the daemon's machine; it may do so later. The message has what ssh said."""


class DaemonLost(DaemonError):  # noqa: N818
    """The daemon ended during a request."""

    may_repeat = True
    """Whether the request changes nothing that a second one would change again."""


class DaemonSilent(DaemonLost):
    """The daemon runs, but did not answer for longer than a healthy one ever would."""


class NotSent(DaemonLost):
    """The daemon ended before all of a request was sent, so that none of it was executed."""


class DaemonDraining(DaemonError):  # noqa: N818
    """The daemon is stopping: it finishes running calls and takes no new ones."""


class AddressTaken(DaemonError):  # noqa: N818
    """Another daemon already serves at the address."""


class Incompatible(DaemonError):  # noqa: N818
    """Client and daemon differ in a version that matters, or in their devices; the message names both sides."""

    @classmethod
    def with_devices(cls, needed: int, found: int) -> "Incompatible":
        """The error of a daemon that has too few devices."""
        return cls(
            f"{needed} devices are needed, and the daemon has {found}: use a smaller mesh, or a daemon with more (on "
            "the CPU: XLA_FLAGS=--xla_force_host_platform_device_count=N for both sides)"
        )


class SessionBusy(JitserverError, RuntimeError):  # noqa: N818
    """A signal handler or a destructor made a request during a call of the same thread; or a callback of a program over
    several devices called another such program.
    """


class ProtocolError(JitserverError):
    """A peer broke the protocol of this version."""


class ProgramsDiffer(JitserverError, RuntimeError):  # noqa: N818
    """A program was found that the function does not give any more; the message says what to do."""


class CrashesDaemon(JitserverError, RuntimeError):  # noqa: N818
    """The daemon died repeatedly during work on this program and refuses it; the message says what to do."""


class ArrayLost(JitserverError, RuntimeError):  # noqa: N818
    """The value of a handle no longer exists on the daemon; the message says why."""


class ArrayBudgetExceeded(JitserverError, MemoryError):  # noqa: N818
    """The daemon's memory budget of arrays is full; the message says who holds what."""


class ProgramLost(JitserverError, RuntimeError):  # noqa: N818
    """A program of a client was evicted from the daemon's memory, and is not on the disk any more."""


class RemoteError(JitserverError, RuntimeError):
    """An exception on the daemon whose type is not loaded in this process."""


@contextlib.contextmanager
def loading() -> collections.abc.Iterator[None]:
    """Raise DaemonUnavailable if code cannot be loaded inside for lack of descriptors or memory."""
    try:
        yield
    except (OSError, ImportError, MemoryError) as error:
        if isinstance(error, (JitserverError, ModuleNotFoundError)):
            raise
        raise DaemonUnavailable(f"jitclient cannot load its code: {str(error) or 'no memory is left'}") from error
