"""Frames between driver and worker, over a pair of file descriptors: a message, and beside it a body of bytes.

```text
8 bytes: length of the message | 8 bytes: length of the body | message (msgpack) | body (pickle)
```

The body is not part of the message, so that arrays are copied less often. A peer that neither reads nor writes for
`patience` seconds is silent; a slow link is not, as long as bytes move.
"""

import os
import select
import struct
import threading
from typing import TypeVar

import msgspec

from jitclient.errors import ProtocolError
from jitclient.wire.encoding import decoded, encoded

_Message = TypeVar("_Message")
_HEAD = struct.Struct("!QQ")
_MAX_MESSAGE_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 20


class Silent(ConnectionError):  # noqa: N818
    """Lack of a sign of life from the peer."""


class Frames:
    """Channel of frames. Any thread may send; one thread receives.

    Args:
        source: file descriptor that frames are read from.
        target: file descriptor that frames are written to; may be the same.
        patience: seconds without a byte after which the peer is silent.

    Attributes:
        patience: the same; may be changed.
    """

    def __init__(self, source: int, target: int, patience: float) -> None:
        self._source, self._target, self.patience = source, target, patience
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(source, select.POLLIN)
        self._writable.register(target, select.POLLOUT)
        for end in {source, target}:
            os.set_blocking(end, False)
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct, body: bytes | memoryview = b"") -> None:
        """Send a frame.

        Raises:
            OSError: the peer has closed the connection.
            Silent: the peer has not read for too long.
        """
        data = encoded(message)
        head = _HEAD.pack(len(data), len(body)) + data
        with self._sending:
            # A small frame takes one write, and a large one is not copied.
            for part in (head + body,) if len(body) < _CHUNK_BYTES else (head, body):
                self._write(memoryview(part))

    def receive(self, kinds: type[_Message]) -> tuple[_Message, bytearray]:
        """Return the next message and its body.

        Raises:
            EOFError: the peer has closed the connection.
            Silent: the peer has written nothing for too long.
            ProtocolError: the bytes are no frame.
        """
        message_bytes, body_bytes = _HEAD.unpack(self._read(_HEAD.size))
        if message_bytes > _MAX_MESSAGE_BYTES:
            raise ProtocolError(f"a frame's message has {message_bytes} bytes")
        data = self._read(message_bytes)
        try:
            message = decoded(memoryview(data), kinds)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a frame holds no message: {error}") from error
        return message, self._read(body_bytes)

    def _write(self, left: memoryview) -> None:
        while left:
            if not self._writable.poll(self.patience * 1000):
                raise Silent(f"the peer has not read for {self.patience:g} s")
            try:
                left = left[os.write(self._target, left[:_CHUNK_BYTES]) :]
            except BlockingIOError:
                continue

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        left = memoryview(data)
        while left:
            try:
                got = os.readv(self._source, [left])
            except BlockingIOError:
                if not self._readable.poll(self.patience * 1000):
                    raise Silent(f"the peer has written nothing for {self.patience:g} s") from None
                continue
            if not got:
                raise EOFError("the peer has closed the connection")
            left = left[got:]
        return data
