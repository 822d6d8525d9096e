"""`jitserver connect-stdio`: what ssh runs for a client on another machine."""

import contextlib
import dataclasses
import fcntl
import os
import threading

import click

from jitclient.sessions import handshake
from jitclient.settings import settings
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
    sock.settimeout(None)
    for pipe in (0, 1):
        with contextlib.suppress(OSError):  # sshd may have made sockets
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)  # large arrays take a third less time
    os.write(1, greeting(started))
    threading.Thread(target=_pass_on, args=(0, sock.fileno()), daemon=True).start()
    _pass_on(sock.fileno(), 1)


def _pass_on(source: int, target: int) -> None:
    """Copy until one side ends. Then this process does: a client never closes half of its connection."""
    view = memoryview(bytearray(_CHUNK_BYTES))
    try:
        while count := os.readv(source, [view]):
            left = view[:count]
            while left:
                left = left[os.write(target, left) :]
    except OSError:  # nobody is left who could be told
        pass
    os._exit(0)
