"""Every exception that jitserver raises on its own account.

JitserverError
├── SettingsError (ValueError)         a JITSERVER_* variable has a value that makes no sense
├── CaptureError (TypeError)           a function cannot be captured, or a capture cannot be loaded
│   └── AmbientInput                   it reads something outside Python's objects (a file, the environment)
├── DaemonError (ConnectionError)
│   ├── DaemonUnavailable              none answers, and none could be started
│   ├── DaemonLost                     it went away in the middle of something
│   │   ├── DaemonSilent               it is there, but said nothing for too long
│   │   └── NotSent                    it had gone before all of the request was sent: nothing was done
│   ├── DaemonDraining                 it is stopping and takes no new calls
│   ├── AddressTaken                   another daemon serves there already
│   └── Incompatible                   client and daemon differ in a version that matters
├── SessionBusy (RuntimeError)         asked in the middle of a call, by a signal handler or a destructor
├── ProtocolError                      a peer sent what no peer of ours sends
├── ProgramsDiffer (RuntimeError)      JITSERVER_VERIFY=1 found another program here than the daemon made
├── CrashesDaemon (RuntimeError)       the daemon ended again and again while it was at this program
├── ArrayLost (RuntimeError)           the value of a handle no longer exists on the daemon
├── ArrayBudgetExceeded (MemoryError)  the daemon holds as many bytes of arrays as it may
├── ProgramLost (RuntimeError)         a program left the daemon's memory, and the disk has it no longer
└── RemoteError (RuntimeError)         an exception on the daemon whose type this process has not loaded
"""


class JitserverError(Exception):
    """The root of all of them: catch this to catch whatever jitserver itself raises."""


class SettingsError(JitserverError, ValueError):
    """A setting has a value that makes no sense; the message names the variable and what it takes."""


class CaptureError(JitserverError, TypeError):
    """A function cannot be captured; the message says what stands in the way and how it is reached."""


class AmbientInput(CaptureError):  # noqa: N818  (the word of the design)
    """A function reads something from outside Python's objects, which no capture can hold."""


class DaemonError(JitserverError, ConnectionError):
    """The daemon could not do what was asked, for a reason that is not the program's."""


class DaemonUnavailable(DaemonError):  # noqa: N818
    """No daemon answers at the address, and none could be started."""


class DaemonLost(DaemonError):  # noqa: N818
    """The daemon went away while something was under way."""


class DaemonSilent(DaemonLost):
    """The daemon is there, but said nothing for longer than one that is well ever does."""


class NotSent(DaemonLost):
    """The daemon had gone before all of a request was sent, so that nothing of it was done."""


class DaemonDraining(DaemonError):  # noqa: N818
    """The daemon is stopping: it finishes what runs and takes nothing new."""


class AddressTaken(DaemonError):  # noqa: N818
    """Another daemon serves at the address already."""


class Incompatible(DaemonError):  # noqa: N818
    """Client and daemon differ in a version that matters; the message names both sides."""


class SessionBusy(JitserverError, RuntimeError):  # noqa: N818
    """The daemon was asked in the middle of a call of the same thread, by a signal handler or a destructor."""


class ProtocolError(JitserverError):
    """A peer sent something that no peer of this version sends."""


class ProgramsDiffer(JitserverError, RuntimeError):  # noqa: N818
    """The daemon made another program of a function than this process would; the message shows where they differ."""


class CrashesDaemon(JitserverError, RuntimeError):  # noqa: N818
    """The daemon ended again and again while it was at this program, and refuses it; the message says what helps."""


class ArrayLost(JitserverError, RuntimeError):  # noqa: N818
    """The value of a handle no longer exists on the daemon; the message says why."""


class ArrayBudgetExceeded(JitserverError, MemoryError):  # noqa: N818
    """The daemon holds as many bytes of arrays as it may; the message says who holds what."""


class ProgramLost(JitserverError, RuntimeError):  # noqa: N818
    """A program that was held for a client left the daemon's memory, and cannot be had from the disk."""


class RemoteError(JitserverError, RuntimeError):
    """An exception on the daemon whose own type is not loaded in this process."""
