"""What passes between the daemon and a client while a Run is carried out: attachments, and callbacks."""

import dataclasses
import threading
from collections.abc import Callable, Sequence

import msgspec

from jitclient.errors import ProtocolError
from jitclient.wire.array_transport import HostArray, allocate, inline_most, pack, unpack_value
from jitclient.wire.channel import WireChannel
from jitclient.wire.decoders import decoded
from jitclient.wire.messages import CALLBACK, CALLED_BACK, RETURN, Callback, CalledBack, Return, Slot, Spec
from jitserver.platform.shared_memory import Lent

_encode = msgspec.msgpack.Encoder().encode

Take = Callable[[int], HostArray]
"""Reads the next attachment, of so many bytes."""


@dataclasses.dataclass(frozen=True)
class Lane:
    """The way between a Run and its client: socket and leased blocks. `say` tells what it waits for."""

    channel: WireChannel
    lent: Lent
    say: Callable[[str], None]
    _asking: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def attachments_of(self, block: int) -> Take:
        """A reader of the attachments of a message that names this block, or none (0)."""
        return self.lent.arguments(block) if block else self._read

    def ask(self, number: int, slot: Slot, arguments: Sequence[HostArray]) -> list[HostArray]:
        """Has the client call the function of a slot; returns what that returned.

        Called on threads of XLA's choice, while the connection's own thread waits for the program.

        Raises:
            RuntimeError: the function raised.
            EOFError: the client is gone.
            ProtocolError: it answered something else.
        """
        attachments: list[HostArray] = []
        most = inline_most(len(arguments))
        specs = [Spec(array.shape, str(array.dtype)) for array in arguments]
        message = Callback(number, specs, [pack(array, attachments, most) for array in arguments])
        with self._asking:
            self.say("waiting for a callback")
            self.channel.send(bytes((CALLBACK,)) + _encode(message), attachments)
            answer = self._answer()
            self.say("running")
            if answer.failed:
                raise RuntimeError("a callback raised in the client")
            if len(answer.results) != len(slot.results):
                raise ProtocolError(f"a callback returned {len(answer.results)} arrays instead of {len(slot.results)}")
            return [
                unpack_value(self._read, value, spec)  # type: ignore[misc]
                for value, spec in zip(answer.results, slot.results, strict=True)
            ]

    def _answer(self) -> CalledBack:
        while True:
            data = self.channel.recv()
            if data[0] == CALLED_BACK:
                return decoded(data[1:], CalledBack)
            if data[0] != RETURN:
                raise ProtocolError(f"a frame of kind {data[0]} is no answer to a callback")
            self.lent.take_back(decoded(data[1:], Return))

    def _read(self, nbytes: int) -> HostArray:
        raw = allocate(nbytes)
        self.channel.recv_into(raw.data)
        return raw
