"""Fresh start of a run that a helper's child has begun: its process executes the command again, without a helper.

That is possible as long as the program has had no effect outside of its process.
"""

import contextlib
import os
import resource
import signal
import stat
import sys
import threading

from jitclient.core.notices import print_notice
from jitserver.run import child, front, history, process_facts
from jitserver.run.request import Request


class FreshStart:
    """Means to start a run again, made before its program begins."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._pid = os.getpid()
        self._has_told = False
        self._writes = _writes()
        self._standard_files = _standard_files()
        self._sockets = _sockets()
        self._attributes = ProcessAttributes()

    def __call__(self, reason: str) -> None:
        """Start the run again. Return if the program has had effects: then it must continue, with a notice."""
        if not self._has_had_effects():
            # Fails if the program has lowered a limit that only root may raise, or removed its directory.
            with contextlib.suppress(OSError, ValueError):
                self._execute(reason)
        if self._has_told:
            return
        self._has_told = True
        history.note_fresh(self._request.command, self._request.cwd)
        print_notice(
            f"{reason}. This comes too late for this run, which had already written something, or read its input, "
            "and uses what the helper has imported. Later runs of this program start in a fresh process"
        )

    def _has_had_effects(self) -> bool:
        try:
            return (
                os.getpid() != self._pid
                or child.StandardInput.was_read
                or threading.active_count() > 1
                or has_had_children()
                or _writes() != self._writes
                or _standard_files() != self._standard_files
                or not _sockets() <= self._sockets
            )
        except OSError:  # such as a closed standard stream
            return True

    def _execute(self, reason: str) -> None:
        """Execute the command again, in the state in which this process began.

        Raises:
            OSError, ValueError: the state cannot be restored, or the words that started the command are not known.
        """
        request = self._request
        environment = dict(request.environment)
        if b"LC_CTYPE" not in process_facts.variables():
            environment.pop(b"LC_CTYPE", None)
        arguments = request.command.arguments
        # The options end where the program begins: `-m` and its name, or its name alone.
        end = len(request.started) - len(arguments) - (2 if request.command.is_module else 1)
        if request.started[len(request.started) - len(arguments) :] != arguments:
            raise ValueError("the command was not started by its own words")
        words = [*request.started[:end], f"{front.FRESH_REASON}{reason}", *request.started[end:]]
        os.chdir(request.cwd)
        self._attributes.restore()
        os.umask(request.umask)
        signal.setitimer(signal.ITIMER_REAL, 0)
        child.clear_signals()
        for number in request.ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)
        os.execve(sys.executable, words, environment)


def _writes() -> int:
    """Return the number of calls in which this process has written.

    Raises:
        OSError: the system does not tell.
    """
    with open("/proc/self/io") as file:
        counts = dict(line.split(": ") for line in file.read().splitlines())
    return int(counts["syscw"])


def _standard_files() -> list[tuple[int, int]]:
    return [(found.st_dev, found.st_ino) for found in map(os.fstat, range(3))]


def _sockets() -> set[int]:
    return {number for number in child.open_fds() if stat.S_ISSOCK(os.fstat(number).st_mode)}


def has_had_children() -> bool:
    """Return whether this process has, or has had, a child process."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0
    return True


class ProcessAttributes:
    """The processors and the limits of this moment, which outlive `exec`, and which code may change."""

    def __init__(self) -> None:
        self._processors = os.sched_getaffinity(0)
        self._limits = {number: resource.getrlimit(number) for number in _kinds_of_limits()}

    def restore(self) -> None:
        """Restore them in this process.

        Raises:
            OSError, ValueError: a limit was lowered that only root may raise.
        """
        os.sched_setaffinity(0, self._processors)
        for number, limit in self._limits.items():
            if resource.getrlimit(number) != limit:
                resource.setrlimit(number, limit)


def _kinds_of_limits() -> list[int]:
    return [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
