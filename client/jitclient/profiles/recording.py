"""Recording of what one daemon does, and its place beside the profile of this process."""

import gzip
import json
import time
from pathlib import Path

from jitclient.core.settings import Settings
from jitclient.jaxside import profiler
from jitclient.profiles import xspace
from jitclient.session import handshake
from jitclient.session.exceptions import answered
from jitclient.wire.address import remote
from jitclient.wire.encoding import decoded, encoded
from jitclient.wire.messages import Verb
from jitclient.wire.recording import PART_BYTES, Record, Recorded


class Recording:
    """Recording of one daemon, over a connection of its own, with which it ends: also if this process dies."""

    def __init__(self, chosen: Settings, options: Record) -> None:
        """Begin the recording at the running daemon that the settings name."""
        self.connection = handshake.connect_to_running(chosen)
        try:
            answered(self.connection.request(Verb.RECORD, encoded(options)), None)
            self._clock_ahead = 0 if remote(chosen.address) is None else self._measured()
        except BaseException:
            self.connection.close()
            raise

    def _measured(self) -> int:
        """Return by how much the daemon's clock is ahead: its time amid the shortest of five round trips."""
        found = []
        for _ in range(5):
            before = time.time_ns()
            there: int = answered(self.connection.request(Verb.CLOCK, encoded(None)), int)
            after = time.time_ns()
            found.append((after - before, there - (before + after) // 2))
        return min(found)[1]

    def end(self) -> None:
        """End the recording, without waiting for it."""
        self._first = self.connection.begin(Verb.RECORDED, encoded(0))

    def fetched(self) -> Recorded:
        """Return what was recorded, after the `end`."""
        part = answered(self.connection.answer_to(self._first), bytes)
        found = bytearray(part)
        while len(part) == PART_BYTES:
            part = answered(self.connection.request(Verb.RECORDED, encoded(len(found))), bytes)
            found += part
        return decoded(bytes(found), Recorded)

    def write(self, own: Path, suffix: str) -> None:
        """Write what was recorded into a run's folder, with times that count from the begin of this process's profile.

        Args:
            own: the file that JAX's profiler has written there.
            suffix: the end of the name, after those of the host.
        """
        found = self.fetched()
        host = f"{found.host}_daemon{suffix}"
        later = profiler.began(found.xspace) - self._clock_ahead - profiler.began(own.read_bytes())
        own.with_name(f"{host}.xplane.pb").write_bytes(xspace.moved(found.xspace, later))
        # Perfetto shows one file.
        trace = own.with_name(own.name.replace(".xplane.pb", ".trace.json.gz"))
        shown, added = (json.loads(gzip.decompress(content)) for content in (trace.read_bytes(), found.trace))
        first = 1 + max((event.get("pid", 0) for event in shown["traceEvents"]), default=0)
        for event in filter(None, added["traceEvents"]):
            event["pid"] = event.get("pid", 0) + first
            event["ts"] = event.get("ts", 0) + later / 1000
            if event["name"] == "process_name":
                event["args"]["name"] = f"{host} {event['args']['name']}"
            shown["traceEvents"].append(event)
        trace.write_bytes(gzip.compress(json.dumps(shown).encode()))
