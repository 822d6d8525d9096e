"""Receives the payload of a capture in parts, and verifies its digest."""

import threading

from jitclient.digests import digest
from jitclient.errors import DaemonUnavailable, ProtocolError
from jitclient.wire.messages import MOST_CAPTURE_BYTES, Upload


class Room:
    """How many bytes all uploads of a daemon may have together. Thread-safe."""

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
                    f"the daemon is receiving {self._taken:,} bytes of captures from its clients, and takes no more "
                    "at a time"
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
        self._payload = bytearray()

    def add(self, upload: Upload) -> None:
        """Adds the next part. A part that starts at 0 discards an interrupted upload.

        Raises:
            ProtocolError: it is not the next part, or the capture gets too large.
            DaemonUnavailable: all connections together are sending too much.
        """
        if upload.start == 0:
            self.discard()
            self._key = upload.capture_key
        if upload.capture_key != self._key or upload.start != len(self._payload):
            raise ProtocolError("a part of a capture came out of order")
        if upload.start + len(upload.part) > self._most:
            self.discard()
            raise ProtocolError(f"the capture is larger than {self._most:,} bytes")
        self._room.take(len(upload.part))
        self._payload += upload.part

    def take(self, key: str) -> bytes:
        """Hands over the whole payload.

        Raises:
            ProtocolError: `key` is not its digest.
        """
        payload = bytes(self._payload)
        self.discard()
        if key != self._key or digest(payload).hex() != key:
            raise ProtocolError("the uploaded capture does not match its key")
        return payload

    def discard(self) -> None:
        """Forgets what has come."""
        self._room.give_back(len(self._payload))
        self._payload = bytearray()
