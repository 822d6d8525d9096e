"""Session of a client with a daemon: the exchange of messages.

A session outlives its connection. An interrupted exchange closes the connection, because an answer may be half read;
the next exchange reconnects, and resumes the session by its token.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from jitclient.capture.codec import values
from jitclient.core.notices import print_notice
from jitclient.errors import ArrayLost, DaemonError, DaemonLost, JitserverError, NotSent, ProtocolError, SessionBusy
from jitclient.session import annotations
from jitclient.session.exceptions import answered
from jitclient.session.link import BUSY, Link
from jitclient.session.retry import with_retries
from jitclient.wire.array_transport import HostArray, unpack_value
from jitclient.wire.connection import ClientConnection
from jitclient.wire.encoding import encoded
from jitclient.wire.messages import ANNOTATE, MAX_ITEMS, Attached, Call, Failure, Report, Run, Spec, Verb
from jitclient.wire.recording import Annotation
from jitclient.wire.reply import Reply

_GOODBYE_SECONDS = 2.0
REPLACED = "a new daemon took over since the program was looked up"
_encode = msgspec.msgpack.Encoder().encode


class Session(Link):
    """Session with one daemon, or with the daemons that replace it."""

    def _reset(self) -> None:
        super()._reset()
        self._report = Report()

    def ask(self, verb: Verb, message: Any, answer: Any, repeats: int = 0) -> Any:
        """Send a verb; return its answer, a message of type `answer`. `repeats` is that of `with_retries`.

        Raises:
            DaemonUnavailable, DaemonLost, Incompatible: there is no daemon to ask.
            BaseException: the daemon raised it; it has its own type if this process has loaded that type.
        """
        return with_retries(self, lambda: self.ask_once(verb, message, answer), repeats)

    def ask_once(
        self,
        verb: Verb,
        message: Any,
        answer: Any,
        deref: values.Deref = values.no_deref,
        timeout: float | None = None,
        meanwhile: Callable[[], None] | None = None,
        on_interrupt: Callable[[], None] | None = None,
    ) -> Any:
        """Send a verb as `ask` does, without retries; give up after `timeout` seconds of silence.

        `meanwhile` is called while the daemon works on the answer, and may use the session. `on_interrupt` is called
        after an interrupt if the daemon has not answered yet.
        """
        payload = encoded(message)
        if names := getattr(message, "packages", ()):
            self.check_packages(names)
        is_yielding = False
        try:
            with self._guarded() as connection:
                # `meanwhile` drops handles over another connection, and the calls in the pipeline may still use them.
                if meanwhile is not None:
                    self._pipeline.drain(connection)
                pending = connection.begin(verb, payload)
                try:
                    if meanwhile is not None:
                        is_yielding = True
                        with self.yielded():
                            meanwhile()
                        is_yielding = False
                    reply = connection.answer_to(pending, timeout)
                except BaseException as error:
                    # An interrupted read may have left half a frame, so look for the answer only if nothing was read.
                    if _is_interrupt(error) and on_interrupt and not (is_yielding and connection.is_over(pending)):
                        on_interrupt()
                    raise
        except BaseException:
            # The answer is not needed. Reconnect, so that the next request, perhaps a goodbye, does not wait for it.
            if is_yielding:
                self._reconnect()
            raise
        return answered(reply, answer, deref)

    def _reconnect(self) -> None:
        with self.lock, contextlib.suppress(JitserverError):
            self.connect()

    def run(
        self,
        message: Run,
        attachments: Sequence[HostArray] = (),
        specs: Sequence[Spec] = (),
        generation: int | None = None,
        program_generation: int | None = None,
    ) -> tuple[Reply, list[HostArray | Failure]]:
        """Send a Run after all queued calls; return the daemon's answer and the fetched values.

        Args:
            message: the Run.
            attachments: arrays that follow the message.
            specs: specs of the arrays that the Run fetches.
            generation: generation of the handles that the Run uses; None if it uses none.
            program_generation: generation of the programs that the Run calls; None if it calls none.

        Raises:
            ArrayLost: the daemon that held the handles is gone.
            NotSent: the connection broke, and no daemon has begun the Run or will.
            DaemonLost: the connection broke, and the daemon may have begun the Run.
        """
        changes = message.calls or message.puts
        if not changes:
            # Copy the Run, because queued calls are added to it, and a retry starts without them.
            message = msgspec.structs.replace(message)
        elif annotations.are_sent:
            annotations.send(self)
        with self.lock:
            connection = self.connection
            if connection is None:
                if program_generation is not None:
                    raise NotSent("the connection broke before the call")
                connection = self.connect()
            if generation is not None and generation != self.generation:
                raise ArrayLost(self.why_lost)
            # This thread already holds the lock, so it would read the answer to another request.
            if self._exchanging:
                raise SessionBusy(BUSY)
            pipeline, drops, dropped = self._pipeline, self.drops, tuple[int, ...]()
            outbox = pipeline.outbox
            try:
                # From here on, calls in signal handlers are refused.
                self._exchanging = True
                if program_generation not in (None, self.program_generation):
                    raise NotSent(REPLACED)
                if drops:
                    dropped = (drops.popleft(),) if len(drops) == 1 else drops.take()
                # The daemon frees the handles before the call, which can use the memory.
                if message.calls:
                    message.calls[0].drop = dropped
                else:
                    message.drop = dropped
                read = connection.read_attachment
                if changes and not (attachments or outbox.queue or outbox.unanswered):
                    outbox.number = message.number = outbox.number + 1
                    reply = connection.reply(_encode(message))
                    if reply.number != message.number:
                        raise ProtocolError(f"the daemon answered Run {reply.number}, not {message.number}")
                else:
                    # The results of a call come back in the call's own block.
                    if pipeline.blocks is not None and not message.calls:
                        pipeline.blocks.lend_for_results(message, specs)
                    reply, lane = pipeline.ask(connection, message, attachments)
                    read = lane or read
                if not specs:
                    return reply, []
                given: list[Any] = reply.values
                return reply, [
                    unpack_value(read, given[value] if type(value) is int else value, spec)
                    for value, spec in zip(given, specs, strict=True)
                ]
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and connection.phase:
                    print_notice("the daemon cannot interrupt a call that it runs; `jitserver status --calls` lists it")
                try:
                    drops.extend(dropped)
                finally:
                    self.disconnect(error)
                    self._exchanging = False
                if changes and type(error) is DaemonLost and not self._may_have_begun(message.number):
                    raise NotSent(f"the daemon exited before it started the call: {error}") from error
                raise
            finally:
                self._exchanging = False

    def _may_have_begun(self, number: int) -> bool:
        """Reconnect, and return whether the daemon may have begun a Run that it never answered."""
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
        """Queue a call whose results get the handles from `first` on, and return without waiting.

        The call is sent with the next batch, by the background thread, or before the next fetch. Its errors are raised
        when its results are used. Called with the `lock` held, while there is a `connection`.

        Raises:
            NotSent: the connection broke, or the program generation changed, since the caller checked: a signal handler
                or a destructor made a call.
            SessionBusy: there are attachments, and this thread is in the middle of an exchange.
        """
        if annotations.are_sent:
            annotations.send(self)
        outbox, drops = self._pipeline.outbox, self.drops
        if self.connection is None or program_generation != self.program_generation:
            raise NotSent(REPLACED)
        if attachments and self._exchanging:
            raise SessionBusy(BUSY)
        dropped = () if not drops else (drops.popleft(),) if len(drops) == 1 else drops.take()
        call = Call(executable, arguments, first, dropped)
        try:
            if outbox.add(call) or attachments:
                self._advance(attachments)
        except BaseException:
            # After an interrupt, the call has no results, and its attachments may not be sent.
            queue = outbox.queue
            if queue and queue[-1] is call:
                queue.pop()
            drops.extend(dropped)
            raise
        if not self.background.awake:
            self.background.wake()

    def is_answered(self, handle: int) -> bool:
        """Return whether the call that makes `handle` is done or has failed."""
        with self.lock:
            if self.connection is None and self._pipeline.outbox:
                try:
                    self.connect()
                except DaemonError:
                    return True
            self._advance()
            return self._pipeline.outbox.is_answered(handle)

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
            self.disconnect(error)
            # After a JitserverError, the next exchange resends the lost calls.
            if not isinstance(error, JitserverError):
                raise
        finally:
            self._exchanging = False

    def annotate(self, annotation: Annotation) -> ClientConnection | None:
        """Send an annotation after the calls that were made so far; return the connection that carries it, if any."""
        with self.lock:
            connection = self.connection
            if connection is None or self._exchanging:
                return None
            try:
                self._exchanging = True
                self._pipeline.flush(connection)
                connection.send_frame(ANNOTATE, _encode(annotation))
                return connection
            except BaseException as error:
                self.disconnect(error)
                # The next exchange resends the lost calls.
                if not isinstance(error, JitserverError):
                    raise
                return None
            finally:
                self._exchanging = False

    def settle(self) -> None:
        """Wait until the daemon has done what this session has sent: calls, and annotations, which it does not answer.

        Raises:
            JitserverError: the connection broke, or this thread is in the middle of an exchange.
        """
        with self.lock:
            self.wait_for_calls()
            if self.connection is not None:
                self.ask_once(Verb.CLOCK, None, int)

    def new_handles(self, count: int) -> int:
        """Reserve `count` handles; return the first. Called while there is a `connection`."""
        first = self.next_handle
        self.next_handle = first + count
        return first

    def count_client_trace(self) -> None:
        """Count a function that was traced in this process."""
        self._report.client_traces += 1

    def count_local_run(self) -> None:
        """Count a call that ran in this process, for the next `send_report`."""
        self._report.local_runs += 1

    def close(self) -> None:
        """Close the session, so that the daemon frees its arrays; a forked child only disconnects.

        A call of another thread or a hanging daemon must not block the exit: the daemon notices the exit in any case.
        """
        if not self.lock.acquire(timeout=_GOODBYE_SECONDS):
            return
        try:
            self.close_spares()
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
        """Report the work done without the daemon since the last report, and the programs that are gone."""
        report, self._report = self._report, Report()
        gone = [self.released.popleft() for _ in range(min(len(self.released), MAX_ITEMS))]
        report.released = tuple([number for generation, number in gone if generation == self.program_generation])
        if report.released:
            # Queued calls may be of these programs.
            with self._guarded() as connection:
                self._pipeline.flush(connection)
        if report != Report():
            self.ask_once(Verb.REPORT, report, None, timeout=timeout)


def _is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is an interrupt, or has one as its `error`, as that of an own trace does."""
    return isinstance(getattr(error, "error", error), KeyboardInterrupt)
