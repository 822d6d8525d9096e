"""Data exchanged between the daemon and a client during a Run: attachments and callbacks."""

import threading
from collections.abc import Callable, Sequence

import msgspec

from jitclient.errors import ProtocolError
from jitclient.wire.array_transport import HostArray, allocate, inline_limit, pack, unpack_value
from jitclient.wire.channel import WireChannel
from jitclient.wire.encoding import decoded
from jitclient.wire.messages import CALLBACK, CALLED_BACK, RETURN, Callback, CalledBack, Return, Slot, Spec
from jitserver.system.shared_memory import Lent

_encode = msgspec.msgpack.Encoder().encode

ReadAttachment = Callable[[int], HostArray | None]
"""Function that reads the next attachment, of the given number of bytes; it returns None if it skips the attachment."""

_SKIPPED_BYTES = 1 << 20

_MAX_AHEAD = 64
"""Maximum number of unanswered callbacks without results by which a program may be ahead of its client."""


class RunChannel:
    """The channel for attachments and callbacks between Runs and their client.

    Args:
        channel: the connection's socket.
        lent: the blocks that the client has leased.
        report_phase: reports the event that a Run waits for.
    """

    def __init__(self, channel: WireChannel, lent: Lent, report_phase: Callable[[str], None]) -> None:
        self.lent = lent
        self._channel = channel
        self._report_phase = report_phase
        self._lock = threading.Lock()
        self._called = 0  # number of the last callback
        self._answered = 0

    def attachments_of(self, block: int) -> ReadAttachment:
        """Return a reader of the attachments of a message that names this block, or no block (0)."""
        return self.lent.arguments(block) if block else self._read

    def skip(self, nbytes: int) -> None:
        """Read an attachment and discard it."""
        some = memoryview(bytearray(min(nbytes, _SKIPPED_BYTES)))
        while nbytes:
            part = some[: min(nbytes, _SKIPPED_BYTES)]
            self._channel.recv_into(part)
            nbytes -= len(part)

    def call_client(self, number: int, slot: Slot, arguments: Sequence[HostArray]) -> list[HostArray]:
        """Call the function of a slot in the client, and return its results.

        Threads chosen by XLA call this method, while the connection's own thread waits for the program.

        Raises:
            RuntimeError: this or an earlier callback of the client raised an exception.
            EOFError: the client has disconnected.
            ProtocolError: the client sent something other than the answer.
        """
        attachments: list[HostArray] = []
        max_inline = inline_limit(len(arguments))
        specs = [Spec(array.shape, str(array.dtype)) for array in arguments]
        given = [pack(array, attachments, max_inline) for array in arguments]
        with self._lock:
            self._called += 1
            message = Callback(self._called, number, specs, given)
            self._channel.send(bytes((CALLBACK,)) + _encode(message), attachments)
            if not slot.results:
                if self._called - self._answered > _MAX_AHEAD:
                    self._wait_for_answer(self._called - _MAX_AHEAD)
                return []
            results = self._wait_for_answer(self._called).results
            if len(results) != len(slot.results):
                raise ProtocolError(f"a callback returned {len(results)} arrays instead of {len(slot.results)}")
            pairs = zip(results, slot.results, strict=True)
            return [unpack_value(self._read, value, spec) for value, spec in pairs]  # type: ignore[misc]

    def record_answer(self, body: bytes) -> CalledBack:
        """Record the answer to a callback, which may belong to a Run that is over."""
        answer = decoded(body, CalledBack)
        self._answered = answer.number
        return answer

    def _wait_for_answer(self, number: int) -> CalledBack:
        self._report_phase("waiting for a callback")
        try:
            while True:
                data = self._channel.recv()
                if data[0] == RETURN:
                    self.lent.take_back(decoded(data[1:], Return))
                    continue
                if data[0] != CALLED_BACK:
                    raise ProtocolError(f"a frame of kind {data[0]} is not an answer to a callback")
                answer = self.record_answer(data[1:])
                if answer.failed:
                    raise RuntimeError("a callback raised an exception in the client")
                if answer.number >= number:
                    return answer
        finally:
            self._report_phase("running")

    def _read(self, nbytes: int) -> HostArray:
        raw = allocate(nbytes)
        self._channel.recv_into(raw.data)
        return raw
