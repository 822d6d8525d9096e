"""Receipt of a capture's payload in parts, with verification of its digest."""

import contextlib
import threading
from collections.abc import Iterator

from jitclient.core.digests import digest
from jitclient.errors import DaemonUnavailable, ProtocolError
from jitclient.wire.messages import MAX_CAPTURE_BYTES, Upload


class UploadLimit:
    """Limit on the total bytes of all captures that a daemon is receiving or making programs from. Thread-safe."""

    def __init__(self, max_bytes: int = 2 * MAX_CAPTURE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._reserved = 0

    def reserve(self, nbytes: int) -> None:
        """Reserve bytes.

        Raises:
            DaemonUnavailable: the limit is reached now.
        """
        with self._lock:
            if self._reserved + nbytes > self._max_bytes:
                raise DaemonUnavailable(
                    f"the daemon is processing {self._reserved:,} bytes of captures from its clients, and accepts no "
                    "more at the same time"
                )
            self._reserved += nbytes

    def release(self, nbytes: int) -> None:
        """Release reserved bytes to the limit."""
        with self._lock:
            self._reserved -= nbytes


_upload_limit = UploadLimit()


class Incoming:
    """The upload of one connection: one capture at a time, of at most `max_bytes` bytes."""

    def __init__(self, max_bytes: int = MAX_CAPTURE_BYTES, limit: UploadLimit = _upload_limit) -> None:
        self._upload_limit = limit
        self._max_bytes = max_bytes
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
            raise ProtocolError("the parts of a capture arrived out of order")
        if upload.start + len(upload.part) > self._max_bytes:
            self.discard()
            raise ProtocolError(f"the capture is larger than {self._max_bytes:,} bytes")
        self._upload_limit.reserve(len(upload.part))
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
        self._upload_limit.release(self._nbytes)
        self._parts, self._nbytes = [], 0
