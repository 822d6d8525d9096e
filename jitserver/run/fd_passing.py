"""What passes between a command and its helper: one message after the other, with descriptors, over a Unix socket.

Both ends are the same Python, run by the same user: `marshal` needs no import and takes every string of the system's.
"""

import array
import marshal
import socket
from collections.abc import Sequence
from typing import Any

MOST_DESCRIPTORS = 253
"""What the kernel passes with one message (SCM_MAX_FD)."""

_LENGTH_BYTES = 4


def send(sock: socket.socket, message: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a message of plain values, with descriptors."""
    body = marshal.dumps(message)
    data = len(body).to_bytes(_LENGTH_BYTES, "little") + body
    passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    rest = data[sock.sendmsg([data], passed) :]
    if rest:  # even nothing cannot be sent to who has read all and gone
        sock.sendall(rest)


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message and its descriptors.

    Raises:
        EOFError: the other end has closed the connection.
    """
    space = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
    data, ancillary, flags, _ = sock.recvmsg(_LENGTH_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if flags & socket.MSG_CTRUNC:
        raise EOFError("descriptors were lost")
    data += _exactly(sock, _LENGTH_BYTES - len(data))
    return marshal.loads(_exactly(sock, int.from_bytes(data, "little"))), list(descriptors)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise EOFError("the other end has closed the connection")
        data += part
    return bytes(data)
