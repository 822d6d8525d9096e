"""Supervisor between the helper and a run: leader of the session in which the run is a job that can stop and continue.

The supervisor reports to the command when the run stops or exits, and forwards the command's signals. If the command
dies, the run is killed.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import termios
from collections.abc import Callable, Iterator, Sequence

from jitclient.wire.address import peer
from jitserver.run import fd_passing
from jitserver.run.relay import EXITED, STOPPED
from jitserver.run.request import GO

_PR_SET_PDEATHSIG = 1


def supervise(sock: socket.socket, terminal: int | None, received: Sequence[int], prepare: Callable[[], None]) -> None:
    """Fork the run and serve it until it exits. Returns only in the run, once it is prepared and the command wants it.

    Args:
        sock: connection to the command, which gets the message that the run can begin, or why it cannot.
        terminal: file descriptor of the run's terminal; None if it has none.
        received: file descriptors that are for the run alone.
        prepare: turns the forked process into that of the run, and closes the file descriptors of this process. All
            signals are blocked during the call: those that arrive are for the program.

    Raises:
        OSError: the run cannot be forked.
    """
    os.setsid()
    # The signal comes from the terminal that the command closes.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if terminal is not None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    own = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    run = os.fork()
    if run == 0:
        signal.set_wakeup_fd(-1)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != own:
            os._exit(1)
        os.setpgid(0, 0)
        if terminal is not None:
            os.tcsetpgrp(terminal, os.getpid())
        _prepare_and_stop(prepare)
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with contextlib.suppress(OSError):
        os.setpgid(run, run)
    for fd in received:
        if fd != terminal:
            os.close(fd)
    try:
        problem = _problem(run)
        fd_passing.send(sock, (problem,))
        if not problem and fd_passing.receive(sock)[0] == GO:
            sock.settimeout(None)
            os.kill(run, signal.SIGCONT)
            _serve(sock, run, wake_read, terminal)
    except (OSError, EOFError):  # the command has died
        with contextlib.suppress(ProcessLookupError):
            os.kill(run, signal.SIGKILL)
    finally:
        os._exit(0)


def _prepare_and_stop(prepare: Callable[[], None]) -> None:
    """Prepare this process for the run, and stop until the command wants the run; on failure, exit with the errno."""
    try:
        prepare()
    except OSError as error:
        os._exit(error.errno or errno.EIO)
    os.kill(os.getpid(), signal.SIGSTOP)
    # Consume this signal, which is not for the program.
    signal.sigtimedwait([signal.SIGCONT], 0)


def _problem(run: int) -> str:
    """Wait until the process of the run is prepared; return why the preparation failed, or ""."""
    _, status = os.waitpid(run, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return ""
    return f"the run's process cannot be prepared: {os.strerror(os.waitstatus_to_exitcode(status))}"


def _serve(sock: socket.socket, run: int, wake_read: int, terminal: int | None) -> None:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    is_stopped = False
    while True:
        ready = dict(poller.poll())
        if wake_read in ready:
            os.read(wake_read, 4096)
            for status in _changes(run):
                if os.WIFSTOPPED(status):
                    fd_passing.send(sock, (STOPPED, os.WSTOPSIG(status)))
                    is_stopped = True
                elif os.WIFCONTINUED(status):
                    # Another process has continued the run: also continue the command, which stopped with it.
                    if is_stopped:
                        os.kill(peer(sock).pid, signal.SIGCONT)
                    is_stopped = False
                else:
                    _report_exit(sock, status, terminal)
                    return
        if sock.fileno() in ready:
            (number, to_group), _ = fd_passing.receive(sock)
            if number == signal.SIGCONT:
                is_stopped = False
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if to_group else os.kill)(run, number)


def _changes(run: int) -> Iterator[int]:
    """Yield the new wait statuses of the run."""
    while (changed := os.waitpid(run, os.WNOHANG | os.WUNTRACED | os.WCONTINUED))[0]:
        yield changed[1]


def _report_exit(sock: socket.socket, status: int, terminal: int | None) -> None:
    # Processes that the run left behind must not get SIGHUP when this session ends.
    if terminal is not None:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(terminal, os.getpgrp())
        os.close(terminal)
    # If the command has died, there is nothing left to kill.
    with contextlib.suppress(OSError):
        fd_passing.send(sock, (EXITED, status))
        # Wait until the command has read everything.
        sock.recv(1)
