"""Messages between a command and its helper, one after the other, with file descriptors, over a Unix socket.

Both ends are the same Python, run by the same user. `marshal` needs no import and accepts every string of the system.
"""

import array
import marshal
import socket
from collections.abc import Sequence
from typing import Any

MAX_FDS = 253
"""Maximum number of file descriptors in one message (SCM_MAX_FD of the kernel)."""

_LENGTH_BYTES = 4


def send(sock: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send a message of plain values, with file descriptors."""
    body = marshal.dumps(message)
    data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    rest = data[sock.sendmsg([data], passed) :]
    # Even zero bytes cannot be sent to a peer that has read everything and closed the connection.
    if rest:
        sock.sendall(rest)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message and its file descriptors.

    Raises:
        EOFError: the other end has closed the connection, or file descriptors were lost.
    """
    space = socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize)
    data, ancillary, flags, _ = sock.recvmsg(_LENGTH_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if flags & socket.MSG_CTRUNC:
        raise EOFError("file descriptors were lost")
    data += _exactly(sock, _LENGTH_BYTES - len(data))
    return marshal.loads(_exactly(sock, int.from_bytes(data, "little"))), list(fds)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError("the other end has closed the connection")
        data += part
    return bytes(data)
