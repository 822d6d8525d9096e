"""Recording of what one daemon does."""

import time

import msgspec

from jitclient.core.settings import Settings
from jitclient.errors import Incompatible, ProtocolError
from jitclient.session import handshake
from jitclient.session.failures import answered
from jitclient.wire.address import remote
from jitclient.wire.encoding import decoded, encoded
from jitclient.wire.messages import Verb
from jitclient.wire.recording import Fetch, Fetched, Record, Recorded

_ROUND_TRIPS = 5


class Recording:
    """Recording of one daemon, over a connection of its own.

    The daemon ends it when the connection closes, so also if this process dies. No call waits for the exchange.

    Attributes:
        clock_ahead: by how many nanoseconds the daemon's clock is ahead of this machine's.
    """

    def __init__(self, chosen: Settings, options: Record) -> None:
        """Begin the recording at the running daemon that the settings name.

        Raises:
            DaemonUnavailable: no daemon answers.
            Incompatible: the daemon is of another version.
            RuntimeError: XLA's profiler does not start there.
        """
        self._connection = handshake.connect_to_running(chosen)
        try:
            answered(self._connection.request(Verb.RECORD, encoded(options)), None)
            self.clock_ahead = 0 if remote(chosen.address) is None else self._measured()
        except (msgspec.MsgspecError, ProtocolError) as error:
            self.close()
            raise Incompatible(f"the daemon has a different version ({error}). Run `jitserver restart`.") from error
        except BaseException:
            self.close()
            raise

    def end(self) -> None:
        """End the recording, without waiting for it.

        Raises:
            DaemonLost: the connection broke.
        """
        self._first = self._connection.begin(Verb.RECORDED, encoded(Fetch(0)))

    def parts(self) -> list[Recorded]:
        """Return the parts of the recording, after its `end`.

        Raises:
            DaemonLost: the connection broke, and the recording is lost.
        """
        fetched: Fetched = answered(self._connection.answer_to(self._first), Fetched)
        found = bytearray(fetched.part)
        while len(found) < fetched.nbytes:
            fetched = answered(self._connection.request(Verb.RECORDED, encoded(Fetch(len(found)))), Fetched)
            found += fetched.part
        return decoded(bytes(found), list[Recorded])

    def close(self) -> None:
        """Close the connection, which ends the recording if it has not ended."""
        self._connection.close()

    def abandon(self) -> None:
        """Leave the connection to the parent, in a forked child."""
        self._connection.abandon()

    def _measured(self) -> int:
        """Return by how much the daemon's clock is ahead: its time in the middle of the shortest round trip."""
        found = []
        for _ in range(_ROUND_TRIPS):
            before = time.time_ns()
            there: int = answered(self._connection.request(Verb.CLOCK, encoded(None)), int)
            after = time.time_ns()
            found.append((after - before, there - (before + after) // 2))
        return min(found)[1]
