"""The recording of a connection, from its begin until it is fetched or the connection closes."""

from jitclient.wire.encoding import encoded
from jitclient.wire.recording import PART_BYTES, Fetched, Record
from jitserver.programs.recorder import Recorder


class ConnectionRecording:
    """The recording that a connection began, and its encoded parts once it has ended."""

    def __init__(self, recorder: Recorder, options: Record) -> None:
        """Begin the recording.

        Raises:
            RuntimeError: XLA's profiler does not start.
        """
        self._recorder = recorder
        self._recording = recorder.begin(options)
        self._encoded = b""

    def fetch(self, start: int) -> Fetched:
        """Return the bytes from `start` on, as many as fit into one answer. The first call ends the recording."""
        if not self._encoded:
            self._encoded = encoded(self._recorder.end(self._recording))
        return Fetched(len(self._encoded), self._encoded[start : start + PART_BYTES])

    def close(self) -> None:
        """End the recording, if it has not ended."""
        self._recorder.end(self._recording)
