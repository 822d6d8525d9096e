"""Receipt of a capture's payload in parts, with verification of its digest."""

import contextlib
import threading
from collections.abc import Iterator

from jitclient.core.digests import digest
from jitclient.errors import DaemonUnavailable, ProtocolError
from jitclient.wire.messages import MAX_CAPTURE_BYTES, Upload


class Room:
    """Limit on the total bytes of all captures that a daemon is receiving or making programs from. Thread-safe."""

    def __init__(self, most: int = 2 * MAX_CAPTURE_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, nbytes: int) -> None:
        """Reserve bytes.

        Raises:
            DaemonUnavailable: the limit is reached now.
        """
        with self._lock:
            if self._taken + nbytes > self._most:
                raise DaemonUnavailable(
                    f"the daemon has {self._taken:,} bytes of captures from its clients to make programs of, and takes "
                    "no more at a time"
                )
            self._taken += nbytes

    def give_back(self, nbytes: int) -> None:
        """Release reserved bytes to the limit."""
        with self._lock:
            self._taken -= nbytes


_room = Room()


class Incoming:
    """The upload of one connection: one capture at a time, of at most `most` bytes."""

    def __init__(self, most: int = MAX_CAPTURE_BYTES, room: Room = _room) -> None:
        self._room = room
        self._most = most
        self._key = ""
        self._parts: list[bytes] = []
        self._nbytes = 0

    def add(self, upload: Upload) -> None:
        """Add the next part. A part that starts at 0 discards an interrupted upload.

        Raises:
            ProtocolError: the part is out of order, or the capture is too large.
            DaemonUnavailable: the captures of all connections together exceed the limit.
        """
        if upload.start == 0:
            self.discard()
            self._key = upload.capture_key
        if upload.capture_key != self._key or upload.start != self._nbytes:
            raise ProtocolError("a part of a capture came out of order")
        if upload.start + len(upload.part) > self._most:
            self.discard()
            raise ProtocolError(f"the capture is larger than {self._most:,} bytes")
        self._room.take(len(upload.part))
        self._parts.append(upload.part)
        self._nbytes += len(upload.part)

    @contextlib.contextmanager
    def taken(self, key: str) -> Iterator[bytes]:
        """Yield the whole payload, whose bytes stay reserved until the context closes.

        Raises:
            ProtocolError: `key` is not the digest of the payload.
        """
        try:
            payload = b"".join(self._parts)
            self._parts = [payload]  # frees the parts, which would double the memory use
            if key != self._key or digest(payload).hex() != key:
                raise ProtocolError("the uploaded capture does not match its key")
            yield payload
        finally:
            self.discard()

    def discard(self) -> None:
        """Discard the received parts."""
        self._room.give_back(self._nbytes)
        self._parts, self._nbytes = [], 0
