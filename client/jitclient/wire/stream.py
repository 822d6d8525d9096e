"""rpyc's socket stream without its timeout, its small chunks, and its patience with a peer that stalls."""

import array
import contextlib
import fcntl
import os
import select
import socket
import struct
import sys
import termios
from collections.abc import Iterator, Sequence

from rpyc.core.stream import SocketStream

STALL_SECONDS = 60.0
"""A peer that stops in the middle of a frame, or takes nothing off its socket, for so long is given up."""

KERNEL_IS_PATIENT = sys.platform == "linux"
"""Whether the socket itself waits no longer than it was told to."""

_DESCRIPTOR = array.array("i").itemsize
_PROBES = 3
_MOST_PARTS = 512  # the kernel takes 1,024 at once


class WireStream(SocketStream):  # type: ignore[misc]
    """A blocking socket whose reads go straight into the caller's memory."""

    __slots__ = ("_descriptors", "_patience")

    def __init__(self, sock: socket.socket) -> None:
        self._descriptors: list[int] | None = None  # where they go, while they may come
        sock.settimeout(None)
        self._patience: float | None = None
        _set_limit(sock, socket.SO_SNDTIMEO, STALL_SECONDS)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_loss(sock)
        super().__init__(sock)

    def set_patience(self, seconds: float) -> None:
        """From now on, no read waits longer for its first byte."""
        self._patience = seconds
        _set_limit(self.sock, socket.SO_RCVTIMEO, seconds)

    def poll(self, timeout: float | None) -> bool:
        """Whether bytes, or the end of the stream, can be read within `timeout` seconds."""
        poller = select.poll()
        poller.register(self.sock, select.POLLIN)
        return bool(poller.poll(None if timeout is None else max(0, timeout) * 1000))

    def read_some(self, view: memoryview) -> int:
        """Reads at least one byte, waiting for it as long as it takes.

        Raises:
            TimeoutError: none came within the patience that was set.
            EOFError: the connection ended.
        """
        if self._patience is not None and not KERNEL_IS_PATIENT and not self.poll(self._patience):
            raise TimeoutError(f"nothing came for {self._patience:.0f} s")
        try:
            return self._receive(view)
        except BlockingIOError as error:
            raise TimeoutError(f"nothing came for {self._patience:.0f} s") from error

    def read_now(self, view: memoryview) -> int:
        """Reads what is there; returns how much that was.

        Raises:
            EOFError: the connection ended.
        """
        try:
            return self._receive(view, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    @contextlib.contextmanager
    def taking_descriptors(self) -> Iterator[list[int]]:
        """While this lasts a read may bring a descriptor; what is left in the list at the end is closed.

        Not at other times: looking for one makes each read slower, and the kernel closes those that nobody looks for.
        """
        taken: list[int] = []
        self._descriptors = taken
        try:
            yield taken
        finally:
            self._descriptors = None
            for descriptor in taken:
                os.close(descriptor)

    def _receive(self, view: memoryview, flags: int = 0) -> int:
        try:
            if self._descriptors is None:
                count = self.sock.recv_into(view, 0, flags)
            else:
                room = socket.CMSG_LEN(_DESCRIPTOR)  # for one: the kernel closes what goes beyond
                count, ancillary, _, _ = self.sock.recvmsg_into([view], room, flags | socket.MSG_CMSG_CLOEXEC)
                for level, kind, data in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        self._descriptors += array.array("i", data[: len(data) // _DESCRIPTOR * _DESCRIPTOR])
        except BlockingIOError:
            raise
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error
        if count == 0:
            raise EOFError("connection closed by peer")
        return int(count)

    def read_rest(self, view: memoryview) -> None:
        """Fills `view`. The peer is in the middle of something, so it may not pause for long."""
        done = 0
        while done < len(view):
            done += self.read_now(view[done:])
            if done < len(view) and not self.poll(STALL_SECONDS):
                raise EOFError(f"the peer stopped in the middle of a frame for {STALL_SECONDS:.0f} s")

    def write(self, *parts: bytes | bytearray | memoryview, descriptor: int | None = None) -> None:
        """Writes all the parts, in their order, and a descriptor with the first.

        Raises:
            TimeoutError: the peer takes nothing.
            EOFError: the connection ended.
        """
        try:
            if len(parts) == 1 and descriptor is None:
                self.sock.sendall(parts[0])
            else:
                self._write_parts(parts, descriptor)
        except BlockingIOError as error:
            raise TimeoutError(f"the peer took nothing for {STALL_SECONDS:.0f} s") from error
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error

    def _write_parts(self, parts: Sequence[bytes | bytearray | memoryview], descriptor: int | None) -> None:
        left = [memoryview(part) for part in parts]
        descriptors = array.array("i", () if descriptor is None else (descriptor,))
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if descriptors else []
        while left:
            sent = self.sock.sendmsg(left[:_MOST_PARTS], beside)
            beside = []
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]

    def write_now(self, data: bytes) -> int:
        """Writes what can be written without waiting; returns how much that was."""
        try:
            return int(self.sock.send(data, socket.MSG_DONTWAIT))
        except (BlockingIOError, EOFError):
            return 0
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error

    def unread(self) -> int:
        """How much of what was written the peer has not read, where the system tells; else 0."""
        if sys.platform != "linux":
            return 0
        count = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.sock, termios.TIOCOUTQ, count)
        return int.from_bytes(count, sys.byteorder)

    def abandon(self) -> None:
        """Lets go of the socket without a word to the peer: a forked child's copy is not the child's to end."""
        self.sock.close()


def _notice_loss(sock: socket.socket) -> None:
    """Has the kernel ask after a peer that is silent: no word comes from a host that lost its power or its network."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":  # elsewhere after two hours
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(STALL_SECONDS / 2))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, int(STALL_SECONDS / 2 / _PROBES))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def _set_limit(sock: socket.socket, option: int, seconds: float) -> None:
    if KERNEL_IS_PATIENT:  # elsewhere the option has another form
        whole, part = divmod(seconds, 1)
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(whole), int(part * 1e6)))
