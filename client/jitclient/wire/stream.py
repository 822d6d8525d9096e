"""rpyc's socket stream without its timeout, its small chunks, and its patience with a peer that stalls."""

import select
import socket
import struct
import sys

from rpyc.core.stream import SocketStream

STALL_SECONDS = 60.0
"""A peer that stops in the middle of a frame, or takes nothing off its socket, for so long is given up."""


class WireStream(SocketStream):  # type: ignore[misc]
    """A blocking socket whose reads go straight into the caller's memory."""

    __slots__ = ()

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        if sys.platform == "linux":
            whole, part = divmod(STALL_SECONDS, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(whole), int(part * 1e6)))
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(sock)

    def poll(self, timeout: float | None) -> bool:
        """Whether bytes, or the end of the stream, can be read within `timeout` seconds."""
        poller = select.poll()
        poller.register(self.sock, select.POLLIN)
        return bool(poller.poll(None if timeout is None else max(0, timeout) * 1000))

    def read_some(self, view: memoryview) -> int:
        """Reads at least one byte, waiting for it as long as it takes."""
        try:
            count = self.sock.recv_into(view)
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error
        if count == 0:
            raise EOFError("connection closed by peer")
        return int(count)

    def read_rest(self, view: memoryview) -> None:
        """Fills `view`. The peer is in the middle of something, so it may not pause for long."""
        done = 0
        while done < len(view):
            if not self.poll(STALL_SECONDS):
                raise EOFError(f"the peer stopped in the middle of a frame for {STALL_SECONDS:.0f} s")
            done += self.read_some(view[done:])

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data`.

        Raises:
            TimeoutError: the peer takes nothing.
            EOFError: the connection ended.
        """
        try:
            self.sock.sendall(data)
        except BlockingIOError as error:
            raise TimeoutError(f"the peer took nothing for {STALL_SECONDS:.0f} s") from error
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error

    def write_now(self, data: bytes) -> int:
        """Writes what can be written without waiting; returns how much that was."""
        try:
            return int(self.sock.send(data, socket.MSG_DONTWAIT))
        except (BlockingIOError, EOFError):
            return 0
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error

    def abandon(self) -> None:
        """Lets go of the socket without a word to the peer: a forked child's copy is not the child's to end."""
        self.sock.close()
