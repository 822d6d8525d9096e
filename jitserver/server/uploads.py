"""A capture's payload on its way in, part by part, and the proof that it is the one its key names."""

from jitclient.digests import digest
from jitclient.errors import ProtocolError
from jitclient.wire.messages import MOST_CAPTURE_BYTES, Upload


class Incoming:
    """What one connection is uploading: one capture at a time, of at most `most` bytes."""

    def __init__(self, most: int = MOST_CAPTURE_BYTES) -> None:
        self._most = most
        self._key = ""
        self._payload = bytearray()

    def add(self, upload: Upload) -> None:
        """Takes the next part; one that starts at 0 begins anew, whatever an interrupted upload left.

        Raises:
            ProtocolError: it is not the next one, or makes the capture too large.
        """
        if upload.start == 0:
            self._key, self._payload = upload.capture_key, bytearray()
        if upload.capture_key != self._key or upload.start != len(self._payload):
            raise ProtocolError("a part of a capture came out of its turn")
        if upload.start + len(upload.part) > self._most:
            self._payload = bytearray()
            raise ProtocolError(f"a capture of more than {self._most:,} bytes is refused")
        self._payload += upload.part

    def take(self, key: str) -> bytes:
        """The whole payload, which is then no longer kept here.

        Raises:
            ProtocolError: it is not the one that `key` is the digest of.
        """
        payload, self._payload = bytes(self._payload), bytearray()
        if key != self._key or digest(payload).hex() != key:
            raise ProtocolError("what was uploaded is not the capture that its key names")
        return payload
