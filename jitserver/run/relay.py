"""Proxy between the `jitserver run` command and the child that runs the script.

The proxy forwards signals and, on a terminal, keys and output. The proxy also stops and continues with the run.
"""

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from jitserver.run import fd_passing
from jitserver.run.terminal import Terminal

EXITED, STOPPED = "exited", "stopped"
"""Kinds of a supervisor's messages: "exited" with a wait status, "stopped" with the number of a signal."""

_NOT_FORWARDED = frozenset(
    {
        *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD),
        *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTRAP),
        *(signal.SIGTTIN, signal.SIGTTOU),
    }
)
_GROUP_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
"""Signals that a terminal sends to all processes of a job."""


class Relay:
    """Proxy between this process and its run."""

    def __init__(self) -> None:
        self._terminal = Terminal.of_this_process()
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)

    @property
    def has_terminal(self) -> bool:
        """Whether the run gets a terminal of its own."""
        return self._terminal is not None

    def fds_to_send(self, numbers: Sequence[int]) -> list[int]:
        """Return the file descriptors to send, which the run gets under these numbers."""
        if self._terminal is None:
            return list(numbers)
        return [self._terminal.inner if number < 3 else number for number in numbers]

    def close(self) -> None:
        """Close all files, because the program runs in this process."""
        for number in (self._nothing, self._wake_read, self._wake_write):
            os.close(number)
        if self._terminal is not None:
            self._terminal.close()

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Collect the signals that this process receives; at the exit, deliver those that were not forwarded."""
        numbers = [number for number in signal.valid_signals() - _NOT_FORWARDED if _is_free(number)]
        before: dict[int, Any] = {number: signal.signal(number, lambda *_: None) for number in numbers}
        wakeup = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            for number in self._received():
                os.kill(os.getpid(), number)

    def wait_for_exit(self, sock: socket.socket, numbers: Sequence[int]) -> int:
        """Serve the run until it exits; return its wait status."""
        for number in numbers:
            if self._terminal is None or number > 2:
                # Only the run may keep the file open: the other end of a pipe must notice when the run closes it.
                os.dup2(self._nothing, number)
        if self._terminal is not None:
            self._terminal.start_forwarding()
        has_job_control = self._terminal is None and _has_terminal()
        try:
            while True:
                kind, value = self._next(sock, has_job_control)
                if kind == EXITED:
                    if self._terminal is not None:
                        self._terminal.drain()
                    return value
                self._stop(value)
        except (EOFError, OSError):
            # The supervisor was killed, and the run with it.
            return signal.SIGKILL
        finally:
            if self._terminal is not None:
                self._terminal.stop_forwarding()

    def _next(self, sock: socket.socket, has_job_control: bool) -> tuple[str, int]:
        """Return the supervisor's next message; until it arrives, forward signals, keys and output."""
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        while True:
            for number in self._received():
                if number == signal.SIGWINCH and self._terminal is not None:
                    self._terminal.copy_size()
                elif number == signal.SIGCONT and self._terminal is not None:
                    self._terminal.start_forwarding()
                    fd_passing.send(sock, (number, False))
                else:
                    fd_passing.send(sock, (number, has_job_control and number in _GROUP_SIGNALS))
            ready = dict(poller.poll() if self._terminal is None else self._terminal.poll(poller))
            if sock.fileno() in ready:
                message, _ = fd_passing.receive(sock)
                return message  # type: ignore[no-any-return]

    def _stop(self, number: int) -> None:
        """Stop as the run did, until this process is continued, and note that the run must continue as well."""
        if self._terminal is not None:
            self._terminal.stop_forwarding()
        stops = number if number in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU) else signal.SIGSTOP
        if stops == signal.SIGSTOP:
            os.kill(os.getpid(), stops)
        else:
            handler = signal.signal(stops, signal.SIG_DFL)
            os.kill(os.getpid(), stops)
            signal.signal(stops, handler)
        received = self._received()
        # This process did not stop: its process group is orphaned, because its shell has exited.
        if signal.SIGCONT not in received:
            received += bytes([signal.SIGCONT])
        os.write(self._wake_write, received)

    def _received(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._wake_read, 4096)
        return b""


def _is_free(number: int) -> bool:
    handler = signal.getsignal(number)
    return handler is not None and handler is not signal.SIG_IGN


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
