"""`jitserver connect-stdio`: what ssh runs for a client on another machine."""

import contextlib
import dataclasses
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
@click.option("--start/--no-start", default=True, help="Whether to start a daemon if none runs. [default: yes]")
def connect_stdio(start: bool) -> None:
    """Join standard input and output to the daemon's socket, for a client that comes through ssh.

    Ends when either side does. The session stays for the client's next connection.
    """
    chosen = dataclasses.replace(settings(), autostart=start and settings().autostart)
    sock, _, started = handshake.dial(chosen, chosen.timeout)
    are_pipes = all(stat.S_ISFIFO(os.fstat(end).st_mode) for end in (0, 1))  # sshd may have made sockets
    if are_pipes:
        for pipe in (0, 1):
            with contextlib.suppress(OSError):  # this user has too many already
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)  # large arrays take a third less time
    # A splice that waited for the socket would hold the lock of the pipe meanwhile, and with it sshd.
    sock.setblocking(not are_pipes)
    pass_on = _splice if are_pipes else _copy
    os.write(1, greeting(started))
    Thread(functools.partial(_until_the_end, pass_on, 0, sock.fileno()), "to the daemon").start()
    _until_the_end(pass_on, sock.fileno(), 1)


def _until_the_end(pass_on: Callable[[int, int], None], source: int, target: int) -> None:
    """Pass bytes on until one side ends. Then this process does: a client never closes half of its connection."""
    with contextlib.suppress(OSError):  # nobody is left who could be told
        pass_on(source, target)
    os._exit(0)


def _splice(source: int, target: int) -> None:
    """From a pipe to the socket or back, without copying the bytes."""
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
