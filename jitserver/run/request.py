"""Request for a run: the program, and the process state that the helper's child must take over from the command."""

import fcntl
import os
import signal
import sys
from typing import Any, NamedTuple

KEPT_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores in every process."""


GO = "go"
"""Last message of the command: from then on, the run belongs to the helper's child.

A child that answers too late never gets this message, so that no second run begins.
"""


class Command(NamedTuple):
    """Program and options that the user asked for.

    Attributes:
        name: path of a script, also of a console script that was named, or name of a module.
        is_module: whether `name` is a module.
        arguments: arguments of the program.
        jit: whether the program's jits run on the daemon.
        report: the form of the report; empty for the default.
        verbose: whether to say why the program runs in a fresh process.
        packages: installed packages whose jits run on the daemon, too.
        fresh: why the program must run in a fresh process; empty if it may run in a helper's child.
        files: file in which to note the files that the run executes; empty for none.
    """

    name: str
    is_module: bool
    arguments: list[str]
    jit: bool = True
    report: str = ""
    verbose: bool = False
    packages: tuple[str, ...] = ()
    fresh: str = ""
    files: str = ""

    def __str__(self) -> str:
        return " ".join([*(["-m"] if self.is_module else []), self.name, *self.arguments])


class Request(NamedTuple):
    """Command and the state of its process.

    Attributes:
        command: the program to run.
        environment: the environment variables, in their order.
        cwd: the working directory.
        umask: the mask of new files.
        ignored: the signals that the process ignored at its start.
        blocked: the signals that the process blocked at its start.
        fds: the numbers of the file descriptors that come with the request.
        terminal: whether the first three are a terminal made for the run.
        started: the words that started this process.
    """

    command: Command
    environment: list[tuple[bytes, bytes]]
    cwd: str
    umask: int
    ignored: list[int]
    blocked: list[int]
    fds: list[int]
    terminal: bool
    started: list[str]

    @classmethod
    def of_this_process(cls, command: Command, terminal: bool) -> "Request":
        """Describe this process in a request.

        Raises:
            OSError: the working directory is gone.
        """
        return cls(
            command,
            [*os.environb.items()],
            os.getcwd(),
            own_umask(),
            sorted(int(number) for number in signal.valid_signals() if _is_ignored(number)),
            sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
            inherited(),
            terminal,
            list(sys.orig_argv),
        )

    def plain(self) -> tuple[Any, ...]:
        """Return the request as plain values."""
        return (tuple(self.command), *self[1:])

    @classmethod
    def of_plain(cls, values: tuple[Any, ...]) -> "Request":
        """Return the request that `plain` returned as values."""
        return cls(Command(*values[0]), *values[1:])


def inherited() -> list[int]:
    """Return the file descriptors that this process inherited, such as those that a shell opens for `3<file`."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            flags = fcntl.fcntl(int(name), fcntl.F_GETFD)
        except OSError:
            # Fails for the file descriptor of the directory itself.
            continue
        if not flags & fcntl.FD_CLOEXEC:
            found.append(int(name))
    return sorted(found)


def python_options() -> list[str]:
    """Return the options with which this interpreter was started."""
    # Imported late: slow, and rarely needed.
    import subprocess

    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [*options, "-u"] if _is_unbuffered() else options


def _is_unbuffered() -> bool:
    return bool(getattr(sys.stdout, "write_through", False))


def _is_ignored(number: int) -> bool:
    return number not in KEPT_BY_PYTHON and signal.getsignal(number) is signal.SIG_IGN


def own_umask() -> int:
    """Return the umask of this process. No other thread may create files meanwhile."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
