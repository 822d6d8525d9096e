"""Pipeline of calls to the daemon: queued in an `Outbox`, sent in batches, answered in order."""

from collections.abc import Sequence

import msgspec

from jitclient.session.blocks import Blocks
from jitclient.session.outbox import MAX_RUNS, Outbox, Sent
from jitclient.wire.array_transport import HostArray
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import RUN, Run
from jitclient.wire.reply import Reply
from jitclient.wire.shared_memory import Reader

_encode = msgspec.msgpack.Encoder().encode


class Pipeline:
    """Exchange of a session's Runs over its connections. The session's lock guards it."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.blocks: Blocks | None = None
        """Shared memory of the connection, if it has any."""
        self.shares_puts = False
        """Whether attachments of puts may be in that memory. On the CPU they go over the socket instead, into memory
        that becomes the array; an accelerator reads them where they are."""

    def advance(self, connection: ClientConnection) -> None:
        """Read the answers that have arrived; send the queue if the daemon is idle or a batch is full.

        Raises:
            DaemonLost, DaemonSilent: the connection broke.
        """
        outbox = self.outbox
        while outbox.unanswered and (reply := connection.reply_if_ready()) is not None:
            self._accept(reply)
        batch = outbox.batch()
        if batch is not None:
            self._send(connection, batch, ())

    def push(self, connection: ClientConnection) -> None:
        """Advance as for a program that has paused: send the queue unless the daemon is far behind."""
        while self.outbox.unanswered and (reply := connection.reply_if_ready()) is not None:
            self._accept(reply)
        if len(self.outbox.unanswered) < MAX_RUNS // 2:
            self.flush(connection)

    def flush(self, connection: ClientConnection, attachments: Sequence[HostArray] = ()) -> None:
        """Send the queued calls. The attachments are arguments of the last call."""
        if self.outbox.queue:
            self._send(connection, Run(calls=self.outbox.queue), attachments)

    def ask(
        self, connection: ClientConnection, run: Run, attachments: Sequence[HostArray] = ()
    ) -> tuple[Reply, Reader | None]:
        """Send the queue and a Run; wait for its answer, and return it with a reader of the values in shared memory.

        A Run with puts or calls is not resent when the connection breaks: the caller decides about retries.

        Raises:
            NotSent, DaemonLost, DaemonSilent: the connection broke.
        """
        changes = bool(run.puts or run.calls)
        if changes:
            self.flush(connection)
        else:
            self.outbox.join(run)
        self._send(connection, run, attachments, may_resend=not changes)
        while True:
            reply, reader = self._accept(connection.reply())
            if reply.number == run.number:
                return reply, reader

    def drain(self, connection: ClientConnection) -> None:
        """Send the queue, and wait for all answers."""
        self.flush(connection)
        while self.outbox.unanswered:
            self._accept(connection.reply())

    def resend(self, connection: ClientConnection) -> None:
        """Send all unanswered Runs on a new connection, after `Outbox.resume`."""
        for sent in self.outbox.unanswered:
            follow = sent.attachments if self.blocks is None else self.blocks.load(sent.run, sent.attachments)
            connection.send_frame(RUN, _encode(sent.run), follow)

    # ---- details

    def _send(
        self, connection: ClientConnection, run: Run, attachments: Sequence[HostArray], may_resend: bool = True
    ) -> None:
        # Enter it before sending, so that an interrupt cannot lose the Run or mix up attachments.
        sent = self.outbox.enter(run, may_resend and not attachments)
        if may_resend and attachments:
            attachments = self._copy_attachments(sent, attachments)
        elif self.blocks is not None and (run.calls or self.shares_puts):
            attachments = self.blocks.load(run, attachments)
        body = _encode(run)
        may_send = self.outbox.weigh(sent, len(body))
        while not may_send:
            self._accept(connection.reply())
            may_send = self.outbox.may_send()
        connection.send_frame(RUN, body, attachments)

    def _copy_attachments(self, sent: Sent, attachments: Sequence[HostArray]) -> Sequence[HostArray]:
        """Copy attachments to memory that is stable until the call is answered; return those that follow the frame."""
        try:
            follow = attachments if self.blocks is None else self.blocks.load(sent.run, attachments)
        except BaseException:
            _copy(sent, attachments)
            raise
        if sent.run.block and self.blocks is not None:
            sent.attachments = self.blocks.loaded(sent.run.block, [array.nbytes for array in attachments])
            sent.may_resend = True
            return follow
        _copy(sent, attachments)
        return sent.attachments

    def _accept(self, reply: Reply) -> tuple[Reply, Reader | None]:
        sent = self.outbox.answered(reply.number)
        return reply, self.blocks.reclaim(sent.run, reply) if self.blocks is not None else None


def _copy(sent: Sent, attachments: Sequence[HostArray]) -> None:
    # Copy, because the program may change the originals.
    sent.attachments = [array.copy() for array in attachments]
    sent.nbytes = sum(array.nbytes for array in attachments)
    sent.may_resend = True
