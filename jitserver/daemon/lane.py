"""What passes between the daemon and a client while a Run is carried out: attachments, and callbacks."""

import threading
from collections.abc import Callable, Sequence

import msgspec

from jitclient.errors import ProtocolError
from jitclient.wire.array_transport import HostArray, allocate, inline_most, pack, unpack_value
from jitclient.wire.channel import WireChannel
from jitclient.wire.encoding import decoded
from jitclient.wire.messages import CALLBACK, CALLED_BACK, RETURN, Callback, CalledBack, Return, Slot, Spec
from jitserver.system.shared_memory import Lent

_encode = msgspec.msgpack.Encoder().encode

Take = Callable[[int], HostArray | None]
"""Reads the next attachment, of so many bytes. None: it was skipped."""

_SKIPPED_BYTES = 1 << 20

_MOST_AHEAD = 64
"""How many callbacks without results a program may be ahead of its client."""


class Lane:
    """The way between Runs and their client.

    Args:
        channel: the connection's socket.
        lent: the blocks that the client has leased.
        say: tells what a Run waits for.
    """

    def __init__(self, channel: WireChannel, lent: Lent, say: Callable[[str], None]) -> None:
        self.lent = lent
        self._channel = channel
        self._say = say
        self._asking = threading.Lock()
        self._asked = 0  # the number of the last callback
        self._answered = 0

    def attachments_of(self, block: int) -> Take:
        """A reader of the attachments of a message that names this block, or none (0)."""
        return self.lent.arguments(block) if block else self._read

    def skip(self, nbytes: int) -> None:
        """Reads an attachment, and keeps nothing of it."""
        some = memoryview(bytearray(min(nbytes, _SKIPPED_BYTES)))
        while nbytes:
            part = some[: min(nbytes, _SKIPPED_BYTES)]
            self._channel.recv_into(part)
            nbytes -= len(part)

    def ask(self, number: int, slot: Slot, arguments: Sequence[HostArray]) -> list[HostArray]:
        """Has the client call the function of a slot; returns what that returns.

        Called on threads of XLA's choice, while the connection's own thread waits for the program.

        Raises:
            RuntimeError: this or an earlier callback of the client raised.
            EOFError: the client is gone.
            ProtocolError: it answered something else.
        """
        attachments: list[HostArray] = []
        most = inline_most(len(arguments))
        specs = [Spec(array.shape, str(array.dtype)) for array in arguments]
        given = [pack(array, attachments, most) for array in arguments]
        with self._asking:
            self._asked += 1
            message = Callback(self._asked, number, specs, given)
            self._channel.send(bytes((CALLBACK,)) + _encode(message), attachments)
            if not slot.results:
                if self._asked - self._answered > _MOST_AHEAD:
                    self._answer_to(self._asked - _MOST_AHEAD)
                return []
            results = self._answer_to(self._asked).results
            if len(results) != len(slot.results):
                raise ProtocolError(f"a callback returned {len(results)} arrays instead of {len(slot.results)}")
            pairs = zip(results, slot.results, strict=True)
            return [unpack_value(self._read, value, spec) for value, spec in pairs]  # type: ignore[misc]

    def take_answer(self, body: bytes) -> CalledBack:
        """Notes the answer to a callback, perhaps one of a Run that is over."""
        answer = decoded(body, CalledBack)
        self._answered = answer.number
        return answer

    def _answer_to(self, number: int) -> CalledBack:
        self._say("waiting for a callback")
        try:
            while True:
                data = self._channel.recv()
                if data[0] == RETURN:
                    self.lent.take_back(decoded(data[1:], Return))
                    continue
                if data[0] != CALLED_BACK:
                    raise ProtocolError(f"a frame of kind {data[0]} is no answer to a callback")
                answer = self.take_answer(data[1:])
                if answer.failed:
                    raise RuntimeError("a callback raised in the client")
                if answer.number >= number:
                    return answer
        finally:
            self._say("running")

    def _read(self, nbytes: int) -> HostArray:
        raw = allocate(nbytes)
        self._channel.recv_into(raw.data)
        return raw
