"""One client's stay at a daemon: its connection, its handles, and the exchange of messages.

A session outlives its connection. Whatever interrupts an exchange drops the connection, because an answer may be half
read; the next exchange connects again and resumes by the session's token.
"""

import contextlib
import dataclasses
import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from jitclient.codec import values
from jitclient.errors import (
    ArrayLost,
    CaptureError,
    DaemonError,
    DaemonLost,
    DaemonSilent,
    JitserverError,
    NotSent,
    ProtocolError,
    SessionBusy,
)
from jitclient.sessions.background import LATER_SECONDS, SOON_SECONDS, Background
from jitclient.sessions.blocks import Blocks, Watch
from jitclient.sessions.drops import Drops
from jitclient.sessions.failures import answered
from jitclient.sessions.handshake import Finder, Identity
from jitclient.sessions.pipeline import Pipeline
from jitclient.sessions.recovery import ATTEMPTS, Recovery
from jitclient.settings import Settings
from jitclient.wire.address import Address
from jitclient.wire.array_transport import HostArray, shaped, unpack
from jitclient.wire.connection import ClientConnection
from jitclient.wire.decoders import decoder
from jitclient.wire.messages import (
    MOST_CAPTURE_BYTES,
    UPLOAD_BYTES,
    Attached,
    Call,
    Done,
    Failure,
    Lookup,
    Prepare,
    Prepared,
    Report,
    Run,
    Spec,
    Upload,
    Verb,
)

_GOODBYE_SECONDS = 2.0
_BUSY = "this thread is in the middle of a call: signal handlers and destructors must not look at arrays"
FOLLOWED = "the daemon was followed by another since the program was looked up"
_FORGOTTEN = "the daemon that held it has ended, or waited too long for this program to come back"
_encode = msgspec.msgpack.Encoder().encode
_decode = decoder(Done).decode
T = TypeVar("T")


class Session:
    """A stay at one daemon, and at those that go on in its place. `generation` rises when the daemon has forgotten us:
    handles and programs are then void. `program_generation` rises also when another one goes on: it has the arrays, and
    is to be asked for programs anew.
    """

    def __init__(self, chosen: Settings) -> None:
        self.settings = chosen
        self.generation = 0
        self.program_generation = 0
        self.why_lost = _FORGOTTEN
        self.address: Address | None = None
        self.platform = ""
        self.lock = threading.RLock()
        self.connection: ClientConnection | None = None
        self.next_handle = 1
        """The name of the next array to come."""
        self._identity = Identity()
        self._process = b""  # which daemon it was
        self._begun = 0  # the last of our Runs that it has begun, when we connected
        self._finder = Finder(chosen)
        self._joined = False
        self._exchanging = False
        self._report = Report()
        self.drops = Drops()
        self._pipeline = Pipeline()
        self.background = Background(self._tidy)
        self._seen = (0, 0)  # how far the program had come when the background looked
        self._watch = Watch(self._tidy_blocks)
        _sessions.add(self)

    # ---- what callers ask for

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
        return self.again(lambda: self._ask(verb, message, answer, deref, timeout))

    def _ask(
        self,
        verb: Verb,
        message: Any,
        answer: Any,
        deref: values.Deref = values.nothing,
        timeout: float | None = None,
    ) -> Any:
        payload = _encode(message)
        with self._guarded() as connection:
            reply = connection.request(verb, payload, timeout)
        return answered(reply, answer, deref)

    def again(self, attempt: Callable[[], T], repeats: int = 0) -> T:
        """What it returns; another attempt where the daemon ended, or is about to, as `Recovery` says."""
        recovery = Recovery(self, repeats)
        while True:
            try:
                return attempt()
            except DaemonError as error:
                if not recovery.retries(error):
                    raise

    def prepare(
        self, lookup: Lookup, make: Callable[[], tuple[Prepare, bytes]], deref: values.Deref, say: Callable[[str], None]
    ) -> tuple[Prepared, int]:
        """A program that the daemon holds for this session; where it has none, made there of what `make` returns.

        With it, the program generation in which its name means something.
        """
        make = functools.cache(make)
        with self.lock:
            prepared = self.again(lambda: self._prepare(lookup, make, deref, say))
            return prepared, self.program_generation

    def _prepare(
        self, lookup: Lookup, make: Callable[[], tuple[Prepare, bytes]], deref: values.Deref, say: Callable[[str], None]
    ) -> Prepared:
        self._connect().on_busy = say
        self._send_report()
        known: Prepared | None = self._ask(Verb.LOOKUP, lookup, Prepared | None, deref)
        if known is not None:
            return known
        request, payload = make()
        self._upload(request.traced.key if request.traced else lookup.capture_key, payload)
        made: Prepared = self._ask(Verb.PREPARE, request, Prepared, deref)
        return made

    def _upload(self, key: str, payload: bytes) -> None:
        if len(payload) > MOST_CAPTURE_BYTES:
            raise CaptureError(
                f"the function and what it captures take {len(payload):,} bytes, more than a daemon takes "
                f"({MOST_CAPTURE_BYTES:,}): pass large arrays as arguments"
            )
        for start in range(0, len(payload), UPLOAD_BYTES):
            self._ask(Verb.UPLOAD, Upload(key, start, payload[start : start + UPLOAD_BYTES]), None)

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
                connection = self._connect()
            if generation is not None and generation != self.generation:
                raise ArrayLost(self.why_lost)
            if self._exchanging:  # the lock is this thread's own: the answer would go to the wrong asker
                raise SessionBusy(_BUSY)
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
                    return done, [_receive(read, *pair) for pair in zip(done.values, specs, strict=True)]
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
            self._connect()
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
            raise SessionBusy(_BUSY)
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
                    self._connect()
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
        except JitserverError:  # met by the next exchange, which sends again what was lost, or says so
            self.disconnect()
        except BaseException:
            self.disconnect()
            raise
        finally:
            self._exchanging = False

    def __enter__(self) -> "Session":
        """Holds the session for several steps that belong together, and connects it first."""
        self.lock.acquire()
        if self.connection is None:
            try:
                self._connect()
            except BaseException:
                self.lock.release()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def new_handles(self, count: int) -> int:
        """Names `count` arrays to come, and returns the first name. Called while `connected`."""
        first = self.next_handle
        self.next_handle = first + count
        return first

    def prepare_anew(self) -> None:
        """From now on the daemon is asked again for each program: it has lost one."""
        self.program_generation += 1

    def count_client_trace(self) -> None:
        """Notes that a function was traced in this process."""
        self._report.client_traces += 1

    def count_local_run(self) -> None:
        """Notes that a call ran in this process instead; the daemon hears of it at the next occasion."""
        self._report.local_runs += 1

    def disconnect(self) -> None:
        """Drops the connection; the next exchange connects again."""
        with self.lock:
            connection, self.connection = self.connection, None
            self._pipeline.blocks = None
            if connection is not None:
                connection.close()

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
                        self._pipeline.blocks.give_back_all()
            if self.connection is not None and not self._joined:
                with contextlib.suppress(JitserverError):
                    self._send_report(_GOODBYE_SECONDS)
                    self._ask(Verb.GOODBYE, None, None, timeout=_GOODBYE_SECONDS)
            self.disconnect()
        finally:
            self.lock.release()

    # ---- connecting

    def _connect(self) -> ClientConnection:
        if self.connection is None:
            reached = self._finder.reach(self._identity)
            welcome = reached.welcome
            if welcome.process != self._process:
                self.program_generation += 1
            if not welcome.resumed:
                self.generation += 1
                self.program_generation += 1
                self.why_lost = welcome.lost or _FORGOTTEN
                self.drops = Drops()
                self._pipeline = Pipeline()
            self.address, self.platform = reached.address, welcome.platform
            self._process, self._begun = welcome.process, welcome.begun
            self._identity = dataclasses.replace(self._identity, token=welcome.token)
            self.next_handle = welcome.first_handle
            self.connection = reached.connection
            try:
                lends = welcome.lends and reached.connection.can_share()
                self._pipeline.blocks = Blocks(reached.connection, self._watch.wake) if lends else None
                with _nothing_else_sent(), self._guarded() as connection:
                    self.drops.extend(self._pipeline.resume(connection, welcome.begun))
            except BaseException:  # what is to be sent again must be the first
                self.disconnect()
                raise
            if self.drops:
                self.background.wake()
        return self.connection

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[ClientConnection]:
        with self.lock:
            if self._exchanging:  # the lock is this thread's own: the answer would go to the wrong asker
                raise SessionBusy(_BUSY)
            connection = self._connect()
            self._exchanging = True
            try:
                yield connection
            except BaseException:
                self.disconnect()
                raise
            finally:
                self._exchanging = False

    def before_fork(self) -> None:
        """In the parent: has what is under way done, as the child may ask for it; has no thread that it catches; and
        writes no memory any more that the child may read.
        """
        if self._pipeline and self.lock.acquire(timeout=_GOODBYE_SECONDS):
            try:
                if not self._exchanging:
                    with contextlib.suppress(JitserverError):
                        self.again(self._drain, ATTEMPTS)  # what was begun is not: the pipeline knows
            finally:
                self.lock.release()
        self.background.rest()
        if self._pipeline.blocks is not None:
            self._pipeline.blocks.retire_read()

    def _drain(self) -> None:
        with self._guarded() as connection:
            self._pipeline.drain(connection)

    def after_fork(self) -> None:
        """In the child: leaves the connection to the parent, and joins its session at the next exchange."""
        self.lock = threading.RLock()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()
        self.drops = Drops()  # what it inherited it may read, never free
        self._pipeline = Pipeline()
        self.background = Background(self._tidy)
        self._watch = Watch(self._tidy_blocks)
        self._joined = True
        self._identity = Identity(self._identity.token)
        self._exchanging = False
        self._report = Report()

    # ---- meanwhile

    def _tidy(self) -> tuple[bool, float]:
        """Sends what is queued and tells of dropped handles, once the program has paused: until then its own calls do.
        Returns whether there was something, and in how many seconds to look again.
        """
        before, self._seen = self._seen, self._pipeline.progress()
        pending = bool(self._pipeline or self.drops)
        if pending and before == self._seen and self.lock.acquire(blocking=False):
            try:
                if self.connection is None:
                    return False, LATER_SECONDS  # the next exchange connects, and sends it
                with contextlib.suppress(JitserverError):
                    self._send_pending()
            finally:
                self.lock.release()
        _, queued = self._seen
        return pending, SOON_SECONDS if queued else LATER_SECONDS

    def _send_pending(self) -> None:
        if self._pipeline:
            with self._guarded() as connection:
                self._pipeline.push(connection)
        if self.drops and not self._pipeline:  # else they go with the next call
            self.run(Run(), [])

    def _tidy_blocks(self) -> bool:
        """Gives back shared memory that is not used, unless somebody is using the connection; whether any is left."""
        if not self.lock.acquire(blocking=False):
            return True
        try:
            blocks = self._pipeline.blocks
            if blocks is None or self._exchanging:
                return False
            return blocks.tidy(time.monotonic())
        except JitserverError:
            self.disconnect()  # half a message may be sent; the next exchange connects again
            return False
        finally:
            self.lock.release()

    def _send_report(self, timeout: float | None = None) -> None:
        report, self._report = self._report, Report()
        if report != Report():
            self._ask(Verb.REPORT, report, None, timeout=timeout)


@contextlib.contextmanager
def _nothing_else_sent() -> Iterator[None]:
    """Of what is about to be asked, nothing is on the way yet."""
    try:
        yield
    except DaemonSilent:
        raise
    except DaemonLost as error:
        raise NotSent(str(error)) from error


def _receive(read: Callable[[int], HostArray], value: bytes | Attached | Failure, spec: Spec) -> HostArray | Failure:
    if isinstance(value, Failure):
        return value
    if isinstance(value, bytes):
        return unpack(value, spec)
    array = shaped(read(value.nbytes), spec)
    array.flags.writeable = False
    return array


_sessions: "weakref.WeakSet[Session]" = weakref.WeakSet()


def _before_fork() -> None:
    for session in list(_sessions):
        session.before_fork()


def _after_fork() -> None:
    for session in list(_sessions):
        session.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
