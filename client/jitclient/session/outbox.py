"""Calls, Runs and drops that the daemon has not answered. State without I/O: `pipeline.py` sends and receives.

A Run is kept until it is answered, so that it can be resent on a new connection if the daemon has not begun it. A
window limits the unanswered Runs: without it, a client that never reads could fill the socket buffers of both ends, a
deadlock.
"""

import collections
from collections.abc import Sequence

import msgspec

from jitclient.errors import ProtocolError
from jitclient.wire.array_transport import HostArray
from jitclient.wire.messages import MAX_ITEMS, Call, Run

MAX_RUNS = 64
"""Maximum number of unanswered Runs."""
_BATCH = 32  # calls in a Run
_MAX_BYTES = 1 << 20
_POLL_EVERY = 8  # calls


class Drops(collections.deque[int]):
    """Dropped handles of one process and one session. An earlier session or a forked parent has its own Drops.

    Appending is safe inside garbage collections: no lock, no I/O.
    """

    def take(self) -> tuple[int, ...]:
        """Remove and return handles, as many as a message may have, to send them.

        The caller puts them back if they could not be sent. Dropping a handle twice is harmless: handles are never
        reused.
        """
        handles = list[int]()
        # Pop one by one, because a garbage collection may append in between.
        while self and len(handles) < MAX_ITEMS:
            handles.append(self.popleft())
        return tuple(handles)


class Sent:
    """Unanswered Run. if `may_resend`, it may be resent with its attachments if the daemon has not begun it."""

    __slots__ = ("attachments", "may_resend", "nbytes", "run")

    def __init__(self, run: Run, may_resend: bool) -> None:
        self.run = run
        self.nbytes = 0
        self.may_resend = may_resend
        self.attachments: Sequence[HostArray] = ()


class Outbox:
    """Queued calls and unanswered Runs of one client of a session, which numbers them across its connections."""

    def __init__(self) -> None:
        self.queue: list[Call] = []
        self.unanswered: collections.deque[Sent] = collections.deque()
        self._nbytes = 0
        self.number = 0
        """Number of the last Run that was sent."""
        # Whether the program makes several calls before it fetches a result.
        self._ahead = False
        self._since_fetch = 0  # calls since the last fetch

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
        """Queue a call; return whether to look now for answers, and for a `batch`."""
        queue = self.queue
        queue.append(call)
        count = len(queue)
        self._since_fetch += 1
        if self._since_fetch > 1:
            self._ahead = True
        if self.unanswered:
            return count >= _BATCH or count % _POLL_EVERY == 0
        return self._ahead

    def batch(self) -> Run | None:
        """Return a Run of the queue if the daemon is idle or a batch is full; otherwise None."""
        if self.queue and (not self.unanswered or len(self.queue) >= _BATCH):
            return Run(calls=self.queue)
        return None

    def join(self, run: Run) -> None:
        """Let a Run that changes nothing carry the queued calls."""
        # A program that fetches each result sends fetch and call together.
        self._ahead = self._since_fetch > 1
        self._since_fetch = 0
        run.calls = self.queue

    # ---- sending

    def enter(self, run: Run, may_resend: bool) -> Sent:
        """Number a Run, and keep it until it is answered."""
        self.number += 1
        run.number = self.number
        sent = Sent(run, may_resend)
        self.unanswered.append(sent)
        # After an interrupt before this line, `resume` clears the queue.
        if run.calls is self.queue:
            self.queue = []
        return sent

    def weigh(self, sent: Sent, nbytes: int) -> bool:
        """Count the bytes of the last Run beside those of its attachments; return whether it `may_send`."""
        sent.nbytes += nbytes
        self._nbytes += sent.nbytes
        return len(self.unanswered) == 1 or self.may_send()

    def may_send(self) -> bool:
        """Return whether the window has room for the last Run, which otherwise waits for answers."""
        return len(self.unanswered) <= 1 or (len(self.unanswered) <= MAX_RUNS and self._nbytes <= _MAX_BYTES)

    def answered(self, number: int) -> Sent:
        """Return the Run of this number, which was answered.

        Raises:
            ProtocolError: this is not the next Run to be answered.
        """
        if not self.unanswered or self.unanswered[0].run.number != number:
            raise ProtocolError(f"the daemon answered Run {number} out of order")
        sent = self.unanswered.popleft()
        self._nbytes -= sent.nbytes
        return sent

    # ---- when a connection broke

    def resume(self, begun: int) -> list[int]:
        """Keep the Runs to resend on a new connection: those after number `begun`, which the daemon has not begun.

        Returns:
            Handles whose drop was part of a Run that is not resent.
        """
        if self.unanswered and self.unanswered[-1].run.calls is self.queue:
            self.queue = []
        left = [sent for sent in self.unanswered if sent.run.number > begun]
        self.unanswered = collections.deque(sent for sent in left if sent.may_resend)
        self._nbytes = sum(sent.nbytes for sent in self.unanswered)
        for sent in self.unanswered:
            # The fetch itself has failed, and may be retried with a message of its own.
            sent.run = msgspec.structs.replace(sent.run, wait=(), fetch=(), into=0, block=0)
        lost = [sent.run for sent in left if not sent.may_resend]
        dropped = [drop for run in lost for drop in (run.drop, *(call.drop for call in run.calls))]
        return [handle for handles in dropped for handle in handles]
