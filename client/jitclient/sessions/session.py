"""One client's stay at a daemon: the exchange of messages.

A session outlives its connection. Whatever interrupts an exchange drops the connection, because an answer may be half
read; the next exchange connects again and resumes by the session's token.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from jitclient.codec import values
from jitclient.errors import ArrayLost, DaemonError, DaemonLost, JitserverError, NotSent, ProtocolError, SessionBusy
from jitclient.sessions.failures import answered
from jitclient.sessions.link import BUSY, Link
from jitclient.wire.array_transport import HostArray, received
from jitclient.wire.decoders import decoder
from jitclient.wire.messages import Attached, Call, Done, Failure, Report, Run, Spec, Verb

_GOODBYE_SECONDS = 2.0
FOLLOWED = "the daemon was followed by another since the program was looked up"
_encode = msgspec.msgpack.Encoder().encode
_decode = decoder(Done).decode


class Session(Link):
    """A client's stay at one daemon, and at those that go on in its place."""

    def _reset(self) -> None:
        super()._reset()
        self._report = Report()

    def ask(
        self,
        verb: Verb,
        message: Any,
        answer: Any,
        deref: values.Deref = values.nothing,
        timeout: float | None = None,
    ) -> Any:
        """One verb of control, and its answer of type `answer`; a daemon that is silent for `timeout` s is given up.

        Raises:
            DaemonUnavailable, DaemonLost, Incompatible: there is no daemon to ask.
            BaseException: what the daemon raised, as its own type where this process has that loaded.
        """
        return self.retrying(lambda: self.ask_once(verb, message, answer, deref, timeout))

    def ask_once(
        self,
        verb: Verb,
        message: Any,
        answer: Any,
        deref: values.Deref = values.nothing,
        timeout: float | None = None,
    ) -> Any:
        """Likewise, without another attempt where the daemon ends."""
        payload = _encode(message)
        with self._guarded() as connection:
            reply = connection.request(verb, payload, timeout)
        return answered(reply, answer, deref)

    def run(
        self,
        message: Run,
        attachments: Sequence[HostArray] = (),
        specs: Sequence[Spec] = (),
        generation: int | None = None,
        program_generation: int | None = None,
    ) -> tuple[Done, list[HostArray | Failure]]:
        """Sends a Run after all that is queued; returns the daemon's answer and the fetched values, of those `specs`.

        `generation` is that of the handles in the message, or None where it has none from before; `program_generation`
        that of the programs which it calls.

        Raises:
            ArrayLost: the daemon that held the handles is gone.
            NotSent: the connection broke, and no daemon has begun it or will.
            DaemonLost: the connection broke, and it may have begun.
        """
        changes = message.calls or message.puts
        if not changes:
            message = msgspec.structs.replace(message)  # it takes along what is queued; whoever looks may look again
        with self.lock:
            connection = self.connection
            if connection is None:
                if program_generation is not None:
                    raise NotSent("the connection broke before the call")
                connection = self.connect()
            if generation is not None and generation != self.generation:
                raise ArrayLost(self.why_lost)
            if self._exchanging:  # the lock is this thread's own: the answer would go to the wrong asker
                raise SessionBusy(BUSY)
            pipeline, drops, dropped = self._pipeline, self.drops, tuple[int, ...]()
            try:
                try:
                    self._exchanging = True  # from here on, whoever calls in a signal handler sends nothing
                    if program_generation not in (None, self.program_generation):
                        raise NotSent(FOLLOWED)
                    if drops:
                        dropped = (drops.popleft(),) if len(drops) == 1 else drops.take()
                    if message.calls:  # what goes before a call leaves room for it
                        message.calls[0].drop = dropped
                    else:
                        message.drop = dropped
                    read = connection.read_attachment
                    if changes and not (attachments or pipeline.queue or pipeline.unanswered):
                        pipeline.number = message.number = pipeline.number + 1
                        done: Done = _decode(connection.answer(_encode(message)))
                        if done.number != message.number:
                            raise ProtocolError(f"the daemon answered Run {done.number}, not {message.number}")
                    else:
                        if pipeline.blocks is not None and not message.calls:  # beside a call there is room
                            pipeline.blocks.offer(message, specs)
                        done, lane = pipeline.ask(connection, message, attachments)
                        read = lane or read
                    if not specs:
                        return done, []
                    return done, [received(read, *pair) for pair in zip(done.values, specs, strict=True)]
                except BaseException:
                    try:
                        drops.extend(dropped)
                    finally:
                        self.disconnect()
                    raise
                finally:
                    self._exchanging = False
            except DaemonLost as error:
                if changes and type(error) is DaemonLost and not self._may_have_begun(message.number):
                    raise NotSent(f"the daemon ended before it began the call: {error}") from error
                raise

    def room_beside(self, attachments: Sequence[HostArray]) -> int:
        """Bytes of large results that may come with the answer to a call, which nobody waits for then but on the CPU,
        where a call returns when it is done. Called with the `lock`.
        """
        blocks = self._pipeline.blocks
        return blocks.room_beside(attachments) if blocks is not None and self.platform == "cpu" else 0

    def _may_have_begun(self, number: int) -> bool:
        """Whether a Run whose answer never came may have begun. Goes on with the session, which tells."""
        generation = self.generation
        try:
            self.connect()
        except DaemonError:
            return True
        return generation != self.generation or 0 < number <= self._begun

    def call_later(
        self,
        executable: int,
        arguments: list[int | bytes | Attached],
        first: int,
        attachments: Sequence[HostArray],
        program_generation: int,
    ) -> None:
        """Queues a call whose results are named from `first` on, and returns at once: it is sent when there is
        something to send it with, a moment later, or before the next look. Called with the `lock`, while there is a
        `connection`.

        What becomes of it is seen when its results are looked at.

        Raises:
            NotSent: the connection broke, or the program is not of this `program_generation`: somebody called in a
                signal handler or a destructor, after its caller had looked.
        """
        pipeline, drops = self._pipeline, self.drops
        if self.connection is None or program_generation != self.program_generation:
            raise NotSent(FOLLOWED)
        if attachments and self._exchanging:
            raise SessionBusy(BUSY)
        dropped = () if not drops else (drops.popleft(),) if len(drops) == 1 else drops.take()
        call = Call(executable, arguments, first, dropped)
        try:
            if pipeline.add(call) or attachments:
                self._advance(attachments)
        except BaseException:  # an interrupt: nobody would look at its results, and what goes beside it is not sent yet
            queue = pipeline.queue
            if queue and queue[-1] is call:
                queue.pop()
            drops.extend(dropped)
            raise
        if not self.background.awake:
            self.background.wake()

    def is_answered(self, handle: int) -> bool:
        """Whether the call that makes that handle is done, or a look would say why it never will be."""
        with self.lock:
            if self.connection is None and self._pipeline:
                try:
                    self.connect()
                except DaemonError:
                    return True
            self._advance()
            return self._pipeline.is_answered(handle)

    def _advance(self, attachments: Sequence[HostArray] = ()) -> None:
        connection = self.connection
        if connection is None or self._exchanging:
            return
        try:
            self._exchanging = True
            if attachments:
                self._pipeline.flush(connection, attachments)
            else:
                self._pipeline.advance(connection)
        except BaseException as error:
            self.disconnect()
            if not isinstance(error, JitserverError):  # which the next exchange meets: it sends again what was lost
                raise
        finally:
            self._exchanging = False

    def new_handles(self, count: int) -> int:
        """Names `count` arrays to come, and returns the first name. Called while `connected`."""
        first = self.next_handle
        self.next_handle = first + count
        return first

    def count_client_trace(self) -> None:
        """Notes that a function was traced in this process."""
        self._report.client_traces += 1

    def count_local_run(self) -> None:
        """Notes that a call ran in this process instead; the daemon hears of it at the next occasion."""
        self._report.local_runs += 1

    def close(self) -> None:
        """Ends the session: the daemon frees its arrays. A forked child only leaves it.

        Neither another thread's call nor a daemon that hangs keeps the process from ending: the daemon sees that end.
        """
        if not self.lock.acquire(timeout=_GOODBYE_SECONDS):
            return
        try:
            if self.connection is not None:
                with contextlib.suppress(JitserverError):
                    if self._pipeline.blocks is not None:
                        self._pipeline.blocks.tidy(float("inf"))
            if self.connection is not None and not self._joined:
                with contextlib.suppress(JitserverError):
                    self.send_report(_GOODBYE_SECONDS)
                    self.ask_once(Verb.GOODBYE, None, None, timeout=_GOODBYE_SECONDS)
            self.disconnect()
        finally:
            self.lock.release()

    def send_report(self, timeout: float | None = None) -> None:
        """Tells the daemon what this process did on its own."""
        report, self._report = self._report, Report()
        if report != Report():
            self.ask_once(Verb.REPORT, report, None, timeout=timeout)
