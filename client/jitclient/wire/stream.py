"""Socket stream of rpyc without its timeout and small chunks, and with a limit for peers that stall."""

import array
import contextlib
import fcntl
import os
import select
import socket
import struct
import sys
import termios
import weakref
from collections.abc import Iterator, Sequence

from rpyc.core.stream import SocketStream

from jitclient.core.clock import monotonic

STALL_SECONDS = 60.0
"""Seconds after which a peer that stops in the middle of a frame, or does not read, is disconnected."""

_MIN_BYTES = 256 << 10
"""Bytes of a frame that a peer must send in each `STALL_SECONDS`: a byte now and then does not hold a connection."""

_FD_BYTES = array.array("i").itemsize
_PROBES = 3
# macOS accepts at most 1,024 parts in one call, and less than 2 GiB.
_PART_BYTES, _MAX_PARTS = 2 << 20, 512
_READ_BYTES = 1 << 30


class WireStream(SocketStream):  # type: ignore[misc]
    """Blocking socket that reads directly into the caller's memory, and is closed with its last reference."""

    __slots__ = ("__weakref__", "_fds", "_patience", "_stall")

    def __init__(self, sock: socket.socket) -> None:
        self._fds: list[int] | None = None  # receives them in `receiving_fds`
        sock.settimeout(None)
        self._patience: float | None = None
        self._stall = STALL_SECONDS
        _set_limit(sock, socket.SO_SNDTIMEO, self._stall)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_loss(sock)
        super().__init__(sock)
        # In a reference cycle, Python may finalize the socket before this stream, and then warns about an unclosed
        # socket.
        closing = weakref.finalize(self, sock.close)
        closing.atexit = False

    def set_patience(self, seconds: float) -> None:
        """Limit the wait for the first byte of a read, and the time that the peer may stall."""
        self._patience = self._stall = seconds
        _set_limit(self.sock, socket.SO_RCVTIMEO, seconds)
        _set_limit(self.sock, socket.SO_SNDTIMEO, seconds)

    def poll(self, timeout: float | None) -> bool:
        """Wait up to `timeout` seconds for bytes or the end of the stream; return whether either came."""
        poller = select.poll()
        poller.register(self.sock, select.POLLIN)
        return bool(poller.poll(None if timeout is None else max(0, timeout) * 1000))

    def read_some(self, view: memoryview) -> int:
        """Wait for at least one byte, and read; return the number of bytes.

        Raises:
            TimeoutError: no byte arrived within the limit of `set_patience`.
            EOFError: the connection closed.
        """
        try:
            return self._receive(view)
        except BlockingIOError as error:
            raise TimeoutError(f"received nothing for {self._patience:.0f} s") from error

    def read_now(self, view: memoryview) -> int:
        """Read the bytes that have arrived; return their number.

        Raises:
            EOFError: the connection closed.
        """
        try:
            return self._receive(view, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    @contextlib.contextmanager
    def receiving_fds(self) -> Iterator[list[int]]:
        """Accept file descriptors inside the context; close them at its exit.

        They are not accepted at other times: asking for them makes each read slower, and the kernel closes file
        descriptors that were not asked for.
        """
        received_fds: list[int] = []
        self._fds = received_fds
        try:
            yield received_fds
        finally:
            self._fds = None
            for fd in received_fds:
                os.close(fd)

    def _receive(self, view: memoryview, flags: int = 0) -> int:
        try:
            if self._fds is None:
                count = self.sock.recv_into(view, 0, flags)
            else:
                # Room for one file descriptor: the kernel closes any others.
                room = socket.CMSG_LEN(_FD_BYTES)
                count, ancillary, _, _ = self.sock.recvmsg_into([view], room, flags | socket.MSG_CMSG_CLOEXEC)
                for level, kind, data in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        self._fds += array.array("i", data[: len(data) // _FD_BYTES * _FD_BYTES])
        except BlockingIOError:
            raise
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error
        if count == 0:
            raise EOFError("connection closed by peer")
        return int(count)

    def read_rest(self, view: memoryview) -> None:
        """Fill `view` with the rest of a frame, within which the peer may not pause for long.

        Raises:
            TimeoutError: the peer stopped in the middle of the frame, or sends it too slowly.
            EOFError: the connection closed.
        """
        done, start = 0, monotonic()
        seconds = STALL_SECONDS * -(-len(view) // _MIN_BYTES)
        if self._patience is None:
            _set_limit(self.sock, socket.SO_RCVTIMEO, self._stall)
        try:
            while done < len(view):
                done += self._receive(view[done : done + _READ_BYTES], socket.MSG_WAITALL)
                if done < len(view) and monotonic() - start > seconds:
                    raise TimeoutError(f"the peer sent {done:,} of {len(view):,} bytes of a frame in {seconds:.0f} s")
        except BlockingIOError as error:
            raise TimeoutError(f"the peer paused within a frame for {self._stall:.0f} s") from error
        finally:
            if self._patience is None:
                _set_limit(self.sock, socket.SO_RCVTIMEO, 0)

    def write(self, *parts: bytes | bytearray | memoryview, fd: int | None = None) -> None:
        """Write all parts in order, and a file descriptor with the first.

        Raises:
            TimeoutError: the peer does not read.
            EOFError: the connection closed.
        """
        try:
            if len(parts) == 1 and fd is None:
                self.sock.sendall(parts[0])
            else:
                self._write_parts(parts, fd)
        except BlockingIOError as error:
            raise TimeoutError(f"the peer has not read for {self._stall:.0f} s") from error
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error

    def _write_parts(self, parts: Sequence[bytes | bytearray | memoryview], fd: int | None) -> None:
        views = [memoryview(part) for part in parts]
        left = [view[start : start + _PART_BYTES] for view in views for start in range(0, len(view), _PART_BYTES)]
        fds = array.array("i", () if fd is None else (fd,))
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if fds else []
        while left:
            sent = self.sock.sendmsg(left[:_MAX_PARTS], ancillary)
            ancillary = []
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if left:
                left[0] = left[0][sent:]

    def write_now(self, data: bytes) -> int:
        """Write as many bytes as possible without blocking; return their number.

        Raises:
            EOFError: the connection broke.
        """
        try:
            return int(self.sock.send(data, socket.MSG_DONTWAIT))
        except (BlockingIOError, EOFError):
            return 0
        except OSError as error:
            raise EOFError(f"connection broken: {error}") from error

    def unread(self) -> int:
        """Return the number of written bytes that the peer has not read; 0 if the system does not report it."""
        if sys.platform != "linux":
            return 0
        count = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.sock, termios.TIOCOUTQ, count)
        return int.from_bytes(count, sys.byteorder)

    def shut_down(self) -> None:
        """End the connection, also for a thread that waits on it."""
        with contextlib.suppress(OSError, EOFError):  # it is closed already
            self.sock.shutdown(socket.SHUT_RDWR)

    def abandon(self) -> None:
        """Close only this process's file descriptor: a forked child must not shut down the parent's connection."""
        self.sock.close()


def _notice_loss(sock: socket.socket) -> None:
    """Enable keepalive: a host that lost power or network does not close its connections."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Other systems keep their default of two hours.
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(STALL_SECONDS / 2))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, int(STALL_SECONDS / 2 / _PROBES))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def _set_limit(sock: socket.socket, option: int, seconds: float) -> None:
    """Limit how long the kernel waits in a send or receive."""
    whole, part = divmod(seconds, 1)
    sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(whole), int(part * 1e6)))  # on macOS, too
