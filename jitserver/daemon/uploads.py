"""Receives the payload of a capture in parts, and verifies its digest."""

import contextlib
import threading
from collections.abc import Iterator

from jitclient.core.digests import digest
from jitclient.errors import DaemonUnavailable, ProtocolError
from jitclient.wire.messages import MOST_CAPTURE_BYTES, Upload


class Room:
    """How many bytes all captures that a daemon receives or makes programs of may have together. Thread-safe."""

    def __init__(self, most: int = 2 * MOST_CAPTURE_BYTES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, nbytes: int) -> None:
        """Takes room.

        Raises:
            DaemonUnavailable: there is none now.
        """
        with self._lock:
            if self._taken + nbytes > self._most:
                raise DaemonUnavailable(
                    f"the daemon has {self._taken:,} bytes of captures from its clients to make programs of, and takes "
                    "no more at a time"
                )
            self._taken += nbytes

    def give_back(self, nbytes: int) -> None:
        """Gives room back."""
        with self._lock:
            self._taken -= nbytes


_room = Room()


class Incoming:
    """The upload of one connection: one capture at a time, of at most `most` bytes."""

    def __init__(self, most: int = MOST_CAPTURE_BYTES, room: Room = _room) -> None:
        self._room = room
        self._most = most
        self._key = ""
        self._parts: list[bytes] = []
        self._nbytes = 0

    def add(self, upload: Upload) -> None:
        """Adds the next part. A part that starts at 0 discards an interrupted upload.

        Raises:
            ProtocolError: it is not the next part, or the capture gets too large.
            DaemonUnavailable: all connections together are sending too much.
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
        """The whole payload, which has its room until the block ends.

        Raises:
            ProtocolError: `key` is not its digest.
        """
        try:
            payload = b"".join(self._parts)
            self._parts = [payload]  # or it would take twice the memory
            if key != self._key or digest(payload).hex() != key:
                raise ProtocolError("the uploaded capture does not match its key")
            yield payload
        finally:
            self.discard()

    def discard(self) -> None:
        """Forgets what has come."""
        self._room.give_back(self._nbytes)
        self._parts, self._nbytes = [], 0
