"""The daemon's end of a connection: it dispatches Runs, and sends BUSY while an answer takes long."""

import contextlib
import functools
import logging
import select
import socket
from typing import Any

import msgspec
from rpyc.core import consts

from jitclient.errors import ProtocolError
from jitclient.wire.channel import LENGTH, WireChannel
from jitclient.wire.connection import WireConnection
from jitclient.wire.encoding import decoded, decoder
from jitclient.wire.envelope import decoded_request
from jitclient.wire.messages import (
    ANNOTATE,
    BUSY,
    CALLED_BACK,
    FIRST_FRAME_BYTES,
    LEASE,
    LEASED,
    MAX_FRAME_BYTES,
    REPLY,
    RETURN,
    RUN,
    Busy,
    Lease,
    Return,
    Run,
)
from jitclient.wire.recording import Annotation
from jitclient.wire.stream import WireStream
from jitserver.daemon import plain_runs, runs
from jitserver.daemon.frame_budget import FrameBudget
from jitserver.daemon.run_channel import RunChannel
from jitserver.daemon.sessions.run_order import Order
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.daemon.uploads import Incoming
from jitserver.programs.devices import serial
from jitserver.programs.recorder import Annotations, DaemonRecording
from jitserver.programs.traces.ambient_reads import monotonic
from jitserver.store.journal import EMPTY_SLOT
from jitserver.system.shared_memory import BlockPool, Lent

log = logging.getLogger(__name__)
_encode = msgspec.msgpack.Encoder().encode
_decode = decoder(Run).decode

_REPLY = bytes((REPLY,))
# Seconds after which a silent connection without a session is closed.
_SECONDS_WITHOUT_SESSION = 60.0


class DaemonConnection(WireConnection):
    """The connection of a client, served by a thread of its own."""

    def __init__(self, service: Any, sock: socket.socket, pid: int, pool: BlockPool, frames: FrameBudget) -> None:
        self.pid = pid
        self.session: DaemonSession | None = None
        self.order: Order | None = None
        self.incoming = Incoming()
        self.annotations = Annotations()
        self.recording: DaemonRecording | None = None
        self.busy_since: float | None = None
        # Slot of the crash journal in which this thread records its current program.
        self.slot = memoryview(EMPTY_SLOT)
        self.is_surplus = False  # may send requests, but not begin a session
        self._phase = "running"
        self._service: runs.Service = service
        super().__init__(service, WireChannel(WireStream(sock)))
        self._channel.max_frame_bytes = FIRST_FRAME_BYTES
        self._channel.large_frame = functools.partial(frames.frame, self._channel.stream.shut_down)
        self.lends = pool.lends and self.can_share()
        self._run_channel = RunChannel(self._channel, Lent(pool), self.report_phase)

    def mark_remote(self) -> None:
        """Record that the client is on another machine.

        The process at the other end of the socket only forwards the client's data, and so cannot share memory.
        """
        self.pid, self.lends = 0, False

    def serve_all(self) -> None:
        """Serve until the connection closes. A peer that violates the protocol is disconnected."""
        try:
            while not self.closed:
                if self.session is not None:
                    self._serve_plain(self.session)
                elif not self.serve(_SECONDS_WITHOUT_SESSION) and self.recording is None:
                    break
        except (EOFError, OSError):
            pass
        except (ProtocolError, msgspec.MsgspecError) as error:
            log.warning("connection: closed (%s)", error)
        except Exception:  # rpyc's decoder may raise any exception on invalid bytes
            log.warning("connection: closed after an error", exc_info=True)
        finally:
            self.close()
            if self.order is not None:
                self.order.leave(self)
            self._run_channel.lent.close()
            self.incoming.discard()
            self.annotations.end()
            if self.recording is not None:
                self.recording.close()

    def _serve_plain(self, session: DaemonSession) -> None:
        """Serve until the connection closes; reply to plain Runs with as few function calls as possible."""
        channel = self._channel
        channel.max_frame_bytes = MAX_FRAME_BYTES
        serial.set_client(session)
        while not self._closed:
            data = channel.recv_at_once()
            if data is None:
                data = channel.recv()
            if data[0] != RUN or self.order is None:
                self.act_on(data)
                continue
            run = _decode(data[1:])
            answer: runs.Answer | None = None
            self._phase, self.busy_since = "running", monotonic()
            try:
                answer = plain_runs.answer(self._service, self, session, self.order, run)
                if answer is None:
                    answer = self._answer(session, self.order, run)
                message = _REPLY + _encode(answer[0])
                if answer[1] or len(message) > MAX_FRAME_BYTES:
                    with session.sending(run.fetch):
                        channel.send(message, answer[1])
                    continue
                with channel.send_lock:
                    channel.stream.sock.sendall(LENGTH.pack(len(message)) + message)
            finally:
                self.busy_since = None
                del answer  # it holds arrays

    def act_on(self, data: bytes) -> None:
        """Handle a message, and record the start time for `busy_since`."""
        self._phase, self.busy_since = "running", monotonic()
        try:
            super().act_on(data)
        finally:
            self.busy_since = None

    def _dispatch(self, data: bytes) -> None:
        if len(data) <= FIRST_FRAME_BYTES:
            super()._dispatch(data)
            return
        self._recvlock.release()
        if data[0] != consts.MSG_REQUEST:
            raise ProtocolError(f"a frame of kind {data[0]} with {len(data):,} bytes is refused")
        self._dispatch_request(*decoded_request(data[1:]))

    def on_frame(self, kind: int, body: bytes) -> None:
        """Handle a lease or return of shared memory, an annotation, or a late answer to a callback of a past Run."""
        if self.session is None:
            super().on_frame(kind, body)
        elif kind == LEASE and self.lends:
            leased, fd = self._run_channel.lent.lease(decoded(body, Lease).nbytes)
            self._channel.send(bytes((LEASED,)) + _encode(leased), fd=fd)
        elif kind == RETURN:
            self._run_channel.lent.take_back(decoded(body, Return))
        elif kind == ANNOTATE:
            self.annotations.follow(decoded(body, Annotation))
        elif kind == CALLED_BACK:
            self._run_channel.record_answer(body)
        else:
            super().on_frame(kind, body)

    def _answer(self, session: DaemonSession, order: Order, run: Run) -> runs.Answer:
        if not order.begin(self, run.number):
            raise EOFError("the client has moved to another connection")
        try:
            return runs.answer(self._service, session, run, self._run_channel)
        finally:
            order.active.end(self)
            if session.pending_drops:
                session.free_pending_drops()

    def shut_down(self) -> None:
        """Shut the connection down, even while its thread is busy.

        A Run that waits for a callback of the client then fails. Otherwise, a silently broken network link would keep
        the Run waiting, although the client has already reconnected.
        """
        with contextlib.suppress(EOFError):  # the connection is already closed
            self._channel.stream.shut_down()

    def report_phase(self, phase: str) -> None:
        """Set the phase of the current work, which the next BUSY reports."""
        self._phase = phase

    def has_waiting_client(self) -> bool:
        """Return whether a living client waits for an answer."""
        return self.busy_since is not None and not self.is_abandoned()

    def is_abandoned(self) -> bool:
        """Return whether the session is over or the client has closed its end of the connection."""
        if self.session is not None and self.session.ended:
            return True
        poller = select.poll()
        try:
            poller.register(self._channel.stream.sock, 0)  # poll always reports a hang-up
        except (EOFError, ValueError):  # closed at this end
            return True
        return bool(poller.poll(0))

    def send_busy(self, since: float, now: float) -> None:
        """Send BUSY without blocking, and only if the client has read all earlier data."""
        with contextlib.suppress(EOFError):
            if not self._channel.stream.unread():
                self._channel.send_if_room(bytes((BUSY,)) + _encode(Busy(self._phase, now - since)))
