"""Frames on a stream: four bytes of length, the message, then the raw bytes of its attachments."""

import contextlib
import mmap
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rpyc.core.channel import Channel

from jitclient.errors import ProtocolError
from jitclient.wire.messages import MAX_FRAME_BYTES
from jitclient.wire.stream import WireStream

if TYPE_CHECKING:
    from jitclient.wire.array_transport import HostArray

LENGTH = struct.Struct("<I")
_READ_AHEAD = 256 << 10


@contextlib.contextmanager
def _unlimited() -> Iterator[Callable[[int], None]]:
    yield lambda nbytes: None


class WireChannel(Channel):  # type: ignore[misc]
    """Channel without compression, with a frame limit, on which one message is sent at a time."""

    __slots__ = ("_buffer", "_end", "_start", "_view", "large_frame", "max_frame_bytes", "send_lock")

    stream: WireStream
    max_frame_bytes: int
    """Maximum length of a frame; longer frames are refused before memory is allocated for them."""
    large_frame: Callable[[], contextlib.AbstractContextManager[Callable[[int], None]]]
    """Context in which a frame above `_READ_AHEAD` bytes arrives: a function that reserves memory for a part of it."""

    def __init__(self, stream: WireStream) -> None:
        super().__init__(stream, compress=False)
        self.send_lock = threading.Lock()
        self.max_frame_bytes = MAX_FRAME_BYTES
        self.large_frame = _unlimited
        # An mmap rather than a bytearray: pages that no peer fills take no memory, and all are freed with the channel.
        self._buffer = mmap.mmap(-1, _READ_AHEAD, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    def poll(self, timeout: float | None) -> bool:
        """Return whether bytes can be read within `timeout` seconds."""
        if self._start == self._end and timeout == 0:
            self._start, self._end = 0, self.stream.read_now(self._view)
        return self._end > self._start or (timeout != 0 and self.stream.poll(timeout))

    def recv(self) -> bytes:
        """Receive the next message.

        Raises:
            EOFError: the peer closed the connection.
            ProtocolError: the frame is longer than `max_frame_bytes`.
        """
        if self._start == self._end:
            self._start, self._end = 0, self.stream.read_some(self._view)
        if self._end - self._start >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer, self._start)
            self._start += LENGTH.size
        else:
            header = bytearray(LENGTH.size)
            self.recv_into(memoryview(header))
            (length,) = LENGTH.unpack(header)
        if not 0 < length <= self.max_frame_bytes:
            raise ProtocolError(f"a frame of {length:,} bytes is refused")
        if self._end - self._start >= length:
            self._start += length
            return bytes(self._view[self._start - length : self._start])
        if length <= _READ_AHEAD:
            return bytes(self._part(length))
        # In parts, so that a frame takes no more memory than has been sent of it.
        with self.large_frame() as reserve:
            parts = []
            for start in range(0, length, _READ_AHEAD):
                nbytes = min(_READ_AHEAD, length - start)
                reserve(nbytes)
                parts.append(self._part(nbytes))
            return b"".join(parts)

    def _part(self, nbytes: int) -> bytearray:
        part = bytearray(nbytes)
        self.recv_into(memoryview(part))
        return part

    def recv_at_once(self) -> bytes | None:
        """Receive the next message if one read returns exactly that message; else return None, and `recv` returns it.

        Raises:
            EOFError: the peer closed the connection.
            OSError: the socket failed.
        """
        if self._start != self._end:
            return None
        count = self.stream.sock.recv_into(self._view)
        if not count:
            raise EOFError("connection closed by peer")
        if count > LENGTH.size and LENGTH.unpack_from(self._buffer) == (count - LENGTH.size,):
            return bytes(self._view[LENGTH.size : count])
        self._start, self._end = 0, count
        return None

    def recv_if_ready(self) -> bytes | None:
        """Receive the next message if part of it has arrived; else return None.

        Raises:
            EOFError: the peer closed the connection.
            OSError: the socket failed.
        """
        if self._start == self._end:
            try:
                count = self.stream.sock.recv_into(self._view, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not count:
                raise EOFError("connection closed by peer")
            self._start, self._end = 0, count
        start = self._start + LENGTH.size
        if start <= self._end:
            end = start + LENGTH.unpack_from(self._buffer, self._start)[0]
            if start < end <= self._end:
                self._start = end
                return bytes(self._view[start:end])
        return self.recv()

    def recv_into(self, target: memoryview) -> None:
        """Fill `target` with the next bytes."""
        ahead = min(len(target), self._end - self._start)
        target[:ahead] = self._view[self._start : self._start + ahead]
        self._start += ahead
        if ahead < len(target):
            self.stream.read_rest(target[ahead:])

    def send(self, data: bytes, attachments: "Sequence[HostArray]" = (), fd: int | None = None) -> None:
        """Send a message, with a file descriptor if given, then its attachments.

        Raises:
            ProtocolError: the message is longer than a frame may be.
        """
        if len(data) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a message of {len(data):,} bytes is longer than a frame may be")
        with self.send_lock:
            frame = LENGTH.pack(len(data)) + data
            self.stream.write(frame, *(_raw(attachments) if attachments else ()), fd=fd)

    def send_if_room(self, data: bytes) -> None:
        """Send a short message if that does not block and no other thread is sending; else drop it."""
        if not self.send_lock.acquire(blocking=False):
            return
        try:
            frame = LENGTH.pack(len(data)) + data
            if self.stream.write_now(frame) not in (0, len(frame)):
                # A partial frame was sent, so the stream can no longer be used.
                self.stream.close()
        finally:
            self.send_lock.release()


def _raw(arrays: "Sequence[HostArray]") -> Iterable[memoryview]:
    # Imported late: loads numpy, which the command line does not need.
    from jitclient.wire.array_transport import raw_bytes

    return map(raw_bytes, arrays)
