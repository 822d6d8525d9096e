"""The command `jitserver connect-stdio`, which ssh runs for a client on another machine."""

import contextlib
import fcntl
import functools
import os
import select
import stat
from collections.abc import Callable

import click

from jitclient.core.settings import settings
from jitclient.core.threads import Thread
from jitclient.session import handshake
from jitclient.wire.ssh import greeting

_CHUNK_BYTES = 1 << 20


@click.command("connect-stdio", hidden=True)
@click.option("--start/--no-start", default=True, help="Whether to start a daemon if none is running. [default: yes]")
def connect_stdio(start: bool) -> None:
    """Join standard input and output to the daemon's socket, for a client that comes through ssh.

    Exits when either side closes the connection. The session stays for the client's next connection.
    """
    chosen = settings()._replace(autostart=start and settings().autostart)
    sock, _, started = handshake.dial(chosen, chosen.timeout)
    are_pipes = all(stat.S_ISFIFO(os.fstat(end).st_mode) for end in (0, 1))  # sshd may use sockets instead
    if are_pipes:
        for pipe in (0, 1):
            with contextlib.suppress(OSError):  # the user's limit on pipe memory is reached
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)  # large arrays take a third less time
    # Do not block: a splice that waits for the socket would hold the pipe's lock, which would block sshd as well.
    sock.setblocking(not are_pipes)
    forward = _splice if are_pipes else _copy
    os.write(1, greeting(started))
    Thread(functools.partial(_forward_until_closed, forward, 0, sock.fileno()), "to the daemon").start()
    _forward_until_closed(forward, sock.fileno(), 1)


def _forward_until_closed(forward: Callable[[int, int], None], source: int, target: int) -> None:
    """Forward bytes until one side closes, then exit: a client never closes only half of its connection."""
    with contextlib.suppress(OSError):  # the peer is gone, so there is no one to report to
        forward(source, target)
    os._exit(0)


def _splice(source: int, target: int) -> None:
    """Forward bytes from a pipe to the socket or back, without copying them."""
    while True:
        try:
            if not os.splice(source, target, _CHUNK_BYTES):
                return
        except BlockingIOError:
            for end, event in ((source, select.POLLIN), (target, select.POLLOUT)):
                poller = select.poll()
                poller.register(end, event)
                poller.poll()


def _copy(source: int, target: int) -> None:
    view = memoryview(bytearray(_CHUNK_BYTES))
    while count := os.readv(source, [view]):
        left = view[:count]
        while left:
            left = left[os.write(target, left) :]
