"""Receives the payload of a capture in parts, and verifies its digest."""

from jitclient.codec.pickler import digest
from jitclient.errors import ProtocolError
from jitclient.wire.messages import MOST_CAPTURE_BYTES, Upload


class Incoming:
    """The upload of one connection: one capture at a time, of at most `most` bytes."""

    def __init__(self, most: int = MOST_CAPTURE_BYTES) -> None:
        self._most = most
        self._key = ""
        self._payload = bytearray()

    def add(self, upload: Upload) -> None:
        """Adds the next part. A part that starts at 0 discards an interrupted upload.

        Raises:
            ProtocolError: it is not the next part, or the capture gets too large.
        """
        if upload.start == 0:
            self._key, self._payload = upload.capture_key, bytearray()
        if upload.capture_key != self._key or upload.start != len(self._payload):
            raise ProtocolError("a part of a capture came out of order")
        if upload.start + len(upload.part) > self._most:
            self._payload = bytearray()
            raise ProtocolError(f"the capture is larger than {self._most:,} bytes")
        self._payload += upload.part

    def take(self, key: str) -> bytes:
        """Hands over the whole payload.

        Raises:
            ProtocolError: `key` is not its digest.
        """
        payload, self._payload = bytes(self._payload), bytearray()
        if key != self._key or digest(payload) != key:
            raise ProtocolError("the uploaded capture does not match its key")
        return payload
