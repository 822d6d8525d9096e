"""Pipeline of calls to the daemon: queued, sent in batches, answered in order.

A Run is kept until it is answered, so that it can be resent on a new connection if the daemon has not begun it. A
window limits the unanswered Runs: without it, a client that never reads could fill the socket buffers of both ends, a
deadlock.
"""

import collections
from collections.abc import Iterator, Sequence

import msgspec

from jitclient.errors import ProtocolError
from jitclient.session.blocks import Blocks
from jitclient.wire.array_transport import HostArray
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import RUN, Call, Run
from jitclient.wire.reply import Reply
from jitclient.wire.shared_memory import Reader


class Drops(collections.deque[int]):
    """Dropped handles of one process and one session. An earlier session or a forked parent has its own Drops.

    Appending is safe inside garbage collections: no lock, no I/O.
    """

    def take(self) -> tuple[int, ...]:
        """Remove and return all handles, to send them.

        The caller puts them back if they could not be sent. Dropping a handle twice is harmless: handles are never
        reused.
        """
        handles = []
        # Pop one by one, because a garbage collection may append in between.
        while self:
            handles.append(self.popleft())
        return tuple(handles)


_BATCH = 32  # calls in a Run
_MAX_RUNS = 64
_MAX_BYTES = 1 << 20
_POLL_EVERY = 8  # calls

_encode = msgspec.msgpack.Encoder().encode


class Sent:
    """Unanswered Run. if `may_resend`, it may be resent with its attachments if the daemon has not begun it."""

    __slots__ = ("attachments", "may_resend", "nbytes", "run")

    def __init__(self, run: Run, may_resend: bool) -> None:
        self.run = run
        self.nbytes = 0
        self.may_resend = may_resend
        self.attachments: Sequence[HostArray] = ()


class Pipeline:
    """Queued calls and unanswered Runs of a session, whose lock guards them."""

    def __init__(self) -> None:
        self.queue: list[Call] = []
        self.unanswered: collections.deque[Sent] = collections.deque()
        self._nbytes = 0
        self.number = 0
        """Number of the last Run that was sent."""
        # Whether the program makes several calls before it fetches a result.
        self._ahead = False
        self._since_fetch = 0  # calls since the last fetch
        self.blocks: Blocks | None = None
        """Shared memory of the connection, if it has any."""

    def __bool__(self) -> bool:
        return bool(self.queue or self.unanswered)

    def progress(self) -> tuple[int, int]:
        """Return numbers that change with every call."""
        return self.number, len(self.queue)

    def is_answered(self, handle: int) -> bool:
        """Return whether the call that makes `handle` has been answered. Handles rise with the order of their calls."""
        pending = next((sent.run.calls for sent in self.unanswered if sent.run.calls), self.queue)
        return not pending or handle < pending[0].results

    # ---- queueing

    def add(self, call: Call) -> bool:
        """Queue a call; return whether to `advance` now."""
        queue = self.queue
        queue.append(call)
        count = len(queue)
        self._since_fetch += 1
        if self._since_fetch > 1:
            self._ahead = True
        if self.unanswered:
            return count >= _BATCH or count % _POLL_EVERY == 0
        return self._ahead

    def advance(self, connection: ClientConnection) -> None:
        """Read the answers that have arrived; send the queue if the daemon is idle or a batch is full.

        Raises:
            DaemonLost, DaemonSilent: the connection broke.
        """
        while self.unanswered and (reply := connection.reply_if_ready()) is not None:
            self._accept(reply)
        if self.queue and (not self.unanswered or len(self.queue) >= _BATCH):
            self._send(connection, Run(calls=self.queue), ())

    def push(self, connection: ClientConnection) -> None:
        """Advance as for a program that has paused: send the queue unless the daemon is far behind."""
        while self.unanswered and (reply := connection.reply_if_ready()) is not None:
            self._accept(reply)
        if len(self.unanswered) < _MAX_RUNS // 2:
            self.flush(connection)

    # ---- sending

    def flush(self, connection: ClientConnection, attachments: Sequence[HostArray] = ()) -> None:
        """Send the queued calls. The attachments are arguments of the last call."""
        if self.queue:
            self._send(connection, Run(calls=self.queue), attachments)

    def ask(
        self, connection: ClientConnection, run: Run, attachments: Sequence[HostArray] = ()
    ) -> tuple[Reply, Reader | None]:
        """Send the queue and a Run; wait for its answer, and return it with a reader of the values in shared memory.

        A Run with puts or calls is not resent when the connection breaks: the caller decides about retries.

        Raises:
            NotSent, DaemonLost, DaemonSilent: the connection broke.
        """
        if run.puts or run.calls:
            self.flush(connection)
            may_resend = False
        else:
            # A program that fetches each result sends fetch and call together.
            self._ahead = self._since_fetch > 1
            self._since_fetch = 0
            run.calls, may_resend = self.queue, True
        self._send(connection, run, attachments, may_resend)
        while True:
            reply, reader = self._accept(connection.reply())
            if reply.number == run.number:
                return reply, reader

    def drain(self, connection: ClientConnection) -> None:
        """Send the queue, and wait for all answers."""
        self.flush(connection)
        while self.unanswered:
            self._accept(connection.reply())

    def _send(
        self, connection: ClientConnection, run: Run, attachments: Sequence[HostArray], may_resend: bool = True
    ) -> None:
        self.number += 1
        run.number = self.number
        sent = Sent(run, may_resend and not attachments)
        # Append before sending, so that an interrupt cannot lose the Run or mix up attachments.
        self.unanswered.append(sent)
        # After an interrupt before this line, `resume` clears the queue.
        if run.calls is self.queue:
            self.queue = []
        if may_resend and attachments:
            attachments = self._copy_attachments(sent, attachments)
        elif self.blocks is not None and run.calls:
            # The attachments of puts go over the socket instead, into memory that becomes the array.
            attachments = self.blocks.load(run, attachments)
        body = _encode(run)
        sent.nbytes += len(body)
        self._nbytes += sent.nbytes
        while len(self.unanswered) > 1 and not self._is_within_window():
            self._accept(connection.reply())
        connection.send_frame(RUN, body, attachments)

    def _copy_attachments(self, sent: Sent, attachments: Sequence[HostArray]) -> Sequence[HostArray]:
        """Copy attachments to memory that is stable until the call is answered; return those that follow the frame."""
        try:
            follow = attachments if self.blocks is None else self.blocks.load(sent.run, attachments)
        except BaseException:
            self._copy(sent, attachments)
            raise
        if sent.run.block and self.blocks is not None:
            sent.attachments = self.blocks.loaded(sent.run.block, [array.nbytes for array in attachments])
            sent.may_resend = True
            return follow
        self._copy(sent, attachments)
        return sent.attachments

    def _copy(self, sent: Sent, attachments: Sequence[HostArray]) -> None:
        # Copy, because the program may change the originals.
        sent.attachments = [array.copy() for array in attachments]
        sent.nbytes = sum(array.nbytes for array in attachments)
        sent.may_resend = True

    def _is_within_window(self) -> bool:
        return len(self.unanswered) <= _MAX_RUNS and self._nbytes <= _MAX_BYTES

    def _accept(self, reply: Reply) -> tuple[Reply, Reader | None]:
        if not self.unanswered or self.unanswered[0].run.number != reply.number:
            raise ProtocolError(f"the daemon answered Run {reply.number} out of order")
        sent = self.unanswered.popleft()
        self._nbytes -= sent.nbytes
        return reply, self.blocks.reclaim(sent.run, reply) if self.blocks is not None else None

    # ---- when a connection broke

    def resume(self, connection: ClientConnection, begun: int) -> Iterator[int]:
        """Resend on a new connection the Runs after number `begun`, which the daemon has not begun.

        Yields:
            Handles whose drop was part of a Run that is not resent.
        """
        if self.unanswered and self.unanswered[-1].run.calls is self.queue:
            self.queue = []
        left = [sent for sent in self.unanswered if sent.run.number > begun]
        self.unanswered = collections.deque(sent for sent in left if sent.may_resend)
        self._nbytes = sum(sent.nbytes for sent in self.unanswered)
        # Before anything is sent, because this connection may break, too.
        for sent in left:
            if not sent.may_resend:
                yield from sent.run.drop
                yield from (handle for call in sent.run.calls for handle in call.drop)
        for sent in self.unanswered:
            # The fetch itself has failed, and may be retried with a message of its own.
            sent.run = msgspec.structs.replace(sent.run, wait=(), fetch=(), into=0, block=0)
            follow = sent.attachments if self.blocks is None else self.blocks.load(sent.run, sent.attachments)
            connection.send_frame(RUN, _encode(sent.run), follow)
