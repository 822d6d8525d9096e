"""Calls on their way to the daemon: queued, sent in batches, answered in order.

A Run is kept until its answer came, so that one which a broken connection swallowed can be sent again: the daemon says
which it has begun. There is a window: a client that ran ahead for ever would fill the socket buffers of both ends, and
then neither could go on.
"""

import collections
from collections.abc import Iterator, Sequence

import msgspec

from jitclient.errors import ProtocolError
from jitclient.sessions.blocks import Blocks
from jitclient.wire.array_transport import HostArray
from jitclient.wire.connection import ClientConnection
from jitclient.wire.decoders import decoder
from jitclient.wire.messages import RUN, Call, Done, Run
from jitclient.wire.shared_memory import Reader

_BATCH = 32  # calls in a Run
_MOST_RUNS = 64
_MOST_BYTES = 1 << 20
_LOOK_EVERY = 8  # calls

_encode = msgspec.msgpack.Encoder().encode
_decode = decoder(Done).decode


class Sent:
    """A Run that is not answered yet, and whether it may be sent again where the daemon has not begun it, with what."""

    __slots__ = ("again", "attachments", "nbytes", "run")

    def __init__(self, run: Run, again: bool) -> None:
        self.run = run
        self.nbytes = 0
        self.again = again
        self.attachments: Sequence[HostArray] = ()


class Pipeline:
    """What one client has asked of its session and not been answered. Its session guards it against threads."""

    def __init__(self) -> None:
        self.queue: list[Call] = []
        self.unanswered: collections.deque[Sent] = collections.deque()
        self._nbytes = 0
        self.number = 0
        """Of the last Run that was sent."""
        self._ahead = False  # whether the program makes calls faster than it looks at their results
        self._since_look = 0  # calls
        self.blocks: Blocks | None = None
        """The shared memory that came with the connection."""

    def __bool__(self) -> bool:
        return bool(self.queue or self.unanswered)

    def progress(self) -> tuple[int, int]:
        """How far the program has come: the same twice means that it has made no call between."""
        return self.number, len(self.queue)

    def is_answered(self, handle: int) -> bool:
        """Whether the call that makes that handle has been answered. Handles are named in the order of their calls."""
        pending = next((sent.run.calls for sent in self.unanswered if sent.run.calls), self.queue)
        return not pending or handle < pending[0].results

    # ---- queueing

    def add(self, call: Call) -> bool:
        """Queues a call; returns whether there is something to do now: to send what is queued, or to read answers."""
        queue = self.queue
        queue.append(call)
        count = len(queue)
        self._since_look += 1
        if self._since_look > 1:
            self._ahead = True
        if self.unanswered:
            return count >= _BATCH or count % _LOOK_EVERY == 0
        return self._ahead

    def advance(self, connection: ClientConnection) -> None:
        """Reads the answers that are there, and sends what is queued where the daemon would else have nothing to do.

        Raises:
            DaemonLost, DaemonSilent: the connection broke.
        """
        while self.unanswered and (body := connection.answer_if_ready()) is not None:
            self._take(body)
        if self.queue and (not self.unanswered or len(self.queue) >= _BATCH):
            self._send(connection, Run(calls=self.queue), ())

    def push(self, connection: ClientConnection) -> None:
        """Likewise, for a program that has paused: sends what is queued as long as the daemon is not far behind."""
        while self.unanswered and (body := connection.answer_if_ready()) is not None:
            self._take(body)
        if len(self.unanswered) < _MOST_RUNS // 2:
            self.flush(connection)

    # ---- sending

    def flush(self, connection: ClientConnection, attachments: Sequence[HostArray] = ()) -> None:
        """Sends the queued calls. What is attached belongs to the last of them."""
        if self.queue:
            self._send(connection, Run(calls=self.queue), attachments)

    def ask(
        self, connection: ClientConnection, run: Run, attachments: Sequence[HostArray] = ()
    ) -> tuple[Done, Reader | None]:
        """Sends what is queued, then a Run, and waits for its answer; returns that, and what reads the values beside it
        if they are in shared memory.

        What is put or called by this Run is not done again where the connection breaks: whoever asks knows whether it
        may be.

        Raises:
            NotSent, DaemonLost, DaemonSilent: the connection broke.
        """
        if run.puts or run.calls:
            self.flush(connection)
            again = False
        else:
            self._ahead = self._since_look > 1  # a look at each result is better sent with its call
            self._since_look = 0
            run.calls, again = self.queue, True
        self._send(connection, run, attachments, again)
        while True:
            done, reader = self._take(connection.answer())
            if done.number == run.number:
                return done, reader

    def drain(self, connection: ClientConnection) -> None:
        """Sends what is queued, and waits for all answers."""
        self.flush(connection)
        while self.unanswered:
            self._take(connection.answer())

    def _send(
        self, connection: ClientConnection, run: Run, attachments: Sequence[HostArray], again: bool = True
    ) -> None:
        self.number += 1
        run.number = self.number
        sent = Sent(run, again and not attachments)
        self.unanswered.append(sent)  # from here on it is not lost, and what is attached not taken for another's
        if run.calls is self.queue:  # an interrupt before this line is seen to by `resume`
            self.queue = []
        if again and attachments:
            attachments = self._attach_for_good(sent, attachments)
        elif self.blocks is not None and run.calls:  # what is put is read off the socket into the memory where it stays
            attachments = self.blocks.load(run, attachments)
        body = _encode(run)
        sent.nbytes += len(body)
        self._nbytes += sent.nbytes
        while len(self.unanswered) > 1 and not self._is_within_window():
            self._take(connection.answer())
        connection.send_frame(RUN, body, attachments)

    def _attach_for_good(self, sent: Sent, attachments: Sequence[HostArray]) -> Sequence[HostArray]:
        """Has what is attached in memory that nobody writes before the answer; returns what is to follow the frame."""
        try:
            follow = attachments if self.blocks is None else self.blocks.load(sent.run, attachments)
        except BaseException:
            self._copy(sent, attachments)
            raise
        if sent.run.block and self.blocks is not None:
            sent.attachments = self.blocks.loaded(sent.run.block, [array.nbytes for array in attachments])
            sent.again = True
            return follow
        self._copy(sent, attachments)
        return sent.attachments

    def _copy(self, sent: Sent, attachments: Sequence[HostArray]) -> None:
        sent.attachments = [array.copy() for array in attachments]  # the program may change its own
        sent.nbytes = sum(array.nbytes for array in attachments)
        sent.again = True

    def _is_within_window(self) -> bool:
        return len(self.unanswered) <= _MOST_RUNS and self._nbytes <= _MOST_BYTES

    def _take(self, body: bytes) -> tuple[Done, Reader | None]:
        done = _decode(body)
        if not self.unanswered or self.unanswered[0].run.number != done.number:
            raise ProtocolError(f"the daemon answered Run {done.number}, which is not the next one")
        sent = self.unanswered.popleft()
        self._nbytes -= sent.nbytes
        return done, self.blocks.landed(sent.run, done) if self.blocks is not None else None

    # ---- when a connection broke

    def resume(self, connection: ClientConnection, begun: int) -> Iterator[int]:
        """Sends again, on a new connection, what the daemon has not begun: Runs up to number `begun` are done or under
        way.

        Yields:
            The handles that were to be dropped by what is not sent again.
        """
        if self.unanswered and self.unanswered[-1].run.calls is self.queue:
            self.queue = []
        left = [sent for sent in self.unanswered if sent.run.number > begun]
        self.unanswered = collections.deque(sent for sent in left if sent.again)
        self._nbytes = sum(sent.nbytes for sent in self.unanswered)
        for sent in left:
            if sent.again:
                # Whoever looked has been told of the break, and may look again with the same message.
                sent.run = msgspec.structs.replace(sent.run, wait=(), fetch=(), into=0, block=0)
                follow = sent.attachments if self.blocks is None else self.blocks.load(sent.run, sent.attachments)
                connection.send_frame(RUN, _encode(sent.run), follow)
            else:
                yield from sent.run.drop
                yield from (handle for call in sent.run.calls for handle in call.drop)
