"""A run as the command asks for it: what to run, and all of its process that the child of a helper has to take over."""

import fcntl
import os
import signal
import sys
from typing import Any, NamedTuple

KEPT_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores in every process."""


GO = "go"
"""What the command says last: from then on the run is not its own, and no answer that came too late begins a second."""


class Command(NamedTuple):
    """What the user asked for.

    Attributes:
        name: the path of a script, or the name of a module.
        is_module: which of the two.
        arguments: what follows it.
        jit: whether its jits are ours.
        report: whether it ends with a report.
        verbose: whether to say why it runs in a fresh process.
        packages: installed packages whose jits are ours, too.
    """

    name: str
    is_module: bool
    arguments: list[str]
    jit: bool = True
    report: bool = False
    verbose: bool = False
    packages: tuple[str, ...] = ()


class Request(NamedTuple):
    """A command and its process.

    Attributes:
        command: what to run.
        environment: the variables, in their order.
        cwd: the working folder.
        umask: the mask of new files.
        ignored: the signals that the process was started to ignore.
        blocked: those that it was started to block.
        descriptors: the numbers of the descriptors that come with the request.
        terminal: whether the first three are a terminal made for the run.
        interpreter: the word that started Python.
    """

    command: Command
    environment: list[tuple[bytes, bytes]]
    cwd: str
    umask: int
    ignored: list[int]
    blocked: list[int]
    descriptors: list[int]
    terminal: bool
    interpreter: str

    @classmethod
    def of_this_process(cls, command: Command, terminal: bool) -> "Request":
        """Describe the process that this one is.

        Raises:
            OSError: its working folder is gone.
        """
        umask = os.umask(0o077)
        os.umask(umask)
        return cls(
            command,
            list(os.environb.items()),
            os.getcwd(),
            umask,
            sorted(int(number) for number in signal.valid_signals() if _is_ignored(number)),
            sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
            inherited(),
            terminal,
            sys.orig_argv[0],
        )

    def plain(self) -> tuple[Any, ...]:
        """As plain values."""
        return (tuple(self.command), *self[1:])

    @classmethod
    def of_plain(cls, values: tuple[Any, ...]) -> "Request":
        """The reverse of `plain`."""
        return cls(Command(*values[0]), *values[1:])


def inherited() -> list[int]:
    """The descriptors with which this process was started, such as those that a shell opens for `3<file`."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            flags = fcntl.fcntl(int(name), fcntl.F_GETFD)
        except OSError:  # that of the folder itself
            continue
        if not flags & fcntl.FD_CLOEXEC:
            found.append(int(name))
    return sorted(found)


def python_options() -> list[str]:
    """The options with which this interpreter was started."""
    import subprocess  # now: it is expensive to import, and most commands do not need it

    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [*options, "-u"] if _is_unbuffered() else options


def _is_unbuffered() -> bool:
    return bool(getattr(sys.stdout, "write_through", False))


def _is_ignored(number: int) -> bool:
    return number not in KEPT_BY_PYTHON and signal.getsignal(number) is signal.SIG_IGN
