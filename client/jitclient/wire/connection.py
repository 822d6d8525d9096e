"""rpyc's connection, locked down: bytes only, two handlers, and jitserver's own kinds of frames beside rpyc's.

Problems of rpyc 6.0.2 that this avoids: references let a peer reach `copy` and pickle, exceptions name types to build,
`SystemExit` in a request exits the other side, and an interrupt while waiting leaves a lock held forever.
"""

import collections
import contextlib
import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rpyc.core import consts
from rpyc.core.protocol import Connection

from jitclient.core import events
from jitclient.errors import DaemonLost, DaemonSilent, NotSent, ProtocolError
from jitclient.wire.channel import LENGTH, WireChannel
from jitclient.wire.encoding import decoded, decoder
from jitclient.wire.messages import (
    BUSY,
    CALLBACK,
    LEASE,
    LEASED,
    MAX_FRAME_BYTES,
    REPLY,
    RETURN,
    RUN,
    Busy,
    Lease,
    Leased,
    Return,
    Verb,
)
from jitclient.wire.reply import Reply
from jitclient.wire.stream import STALL_SECONDS

if TYPE_CHECKING:
    from jitclient.wire.array_transport import HostArray
    from jitclient.wire.shared_memory import Block

_encode = msgspec.msgpack.Encoder().encode
_decode = decoder(Reply).decode

_RUN = bytes((RUN,))

HANDLE_VERB = 64
_VERBS = frozenset(map(str, Verb))


class WireConnection(Connection):  # type: ignore[misc]
    """Either end of a connection. The daemon's service has an `exposed_` method for each verb."""

    # Read by `__del__`, which also runs on half-built objects.
    _closed = True
    _channel: WireChannel

    def __init__(self, service: Any, channel: WireChannel) -> None:
        super().__init__(service, channel, {"sync_request_timeout": None, "allow_pickle": False})

    # ---- what a peer may ask

    @classmethod
    def _request_handlers(cls) -> dict[int, Any]:
        return {HANDLE_VERB: cls._handle_verb, consts.HANDLE_PING: cls._handle_ping}

    def _handle_verb(self, verb: object, payload: object) -> bytes:
        if type(verb) is not str or type(payload) is not bytes or verb not in _VERBS:
            raise ProtocolError(f"no such verb: {verb!r:.40}")
        answer: bytes = getattr(self._local_root, f"exposed_{verb}")(self, payload)
        return answer

    def _box(self, value: Any) -> tuple[int, Any]:
        return consts.LABEL_VALUE, value

    def _unbox(self, package: Any) -> Any:
        if type(package) is not tuple or len(package) != 2 or package[0] != consts.LABEL_VALUE:
            raise ProtocolError("references to objects are refused")
        return package[1]

    def _box_exc(self, kind: type[BaseException], error: BaseException, tb: Any) -> str:
        return f"{kind.__name__}: {error}"

    def _unbox_exc(self, raw: Any) -> Exception:
        return ProtocolError(f"the peer refused a request: {raw!s:.2000}")

    # ---- one frame at a time

    def serve(self, timeout: float | None = None, wait_for_lock: bool = True, waiting: Any = None) -> bool:
        """Receive and handle one frame; return False if none arrived within `timeout` seconds."""
        if timeout is not None and not self._channel.poll(timeout):
            return False
        self.act_on(self._channel.recv())
        return True

    def act_on(self, data: bytes) -> None:
        """Handle a message: a frame of jitserver's own kinds, or one of rpyc's."""
        if data[0] >= RUN:
            self.on_frame(data[0], data[1:])
        else:
            # `_dispatch` releases this lock.
            self._recvlock.acquire()
            self._dispatch(data)

    def on_frame(self, kind: int, body: bytes) -> None:
        """Handle a frame of jitserver's own kinds.

        Raises:
            ProtocolError: this side does not accept frames of that kind.
        """
        raise ProtocolError(f"unexpected frame of kind {kind}")

    def can_share(self) -> bool:
        """Return whether this connection supports shared memory."""
        # Imported late: loads numpy, which the command line does not need.
        from jitclient.wire.shared_memory import can_cross

        return can_cross(self._channel.stream.sock)

    def close(self) -> None:
        """Close the connection immediately; the peer sees the end of the stream."""
        if not self._closed:
            self._cleanup()


class ClientConnection(WireConnection):
    """Client's end of a connection: sends requests, and waits for answers as long as the daemon is alive."""

    def __init__(self, channel: WireChannel, patience: float = STALL_SECONDS) -> None:
        """Take over a channel, with a limit on the daemon's silence.

        A working daemon sends BUSY every second, so a daemon that is silent for `patience` seconds is lost or hangs.
        """
        super().__init__(_Nothing(), channel)
        self.on_callback: Callable[[bytes], None] | None = None
        self.phase = ""
        """The daemon's work for the answer that this client waits for, once it takes long."""
        self._replies: collections.deque[Reply] = collections.deque()
        self._leased: Leased | None = None
        self._patience = patience
        channel.stream.set_patience(patience)

    def request(self, verb: Verb, payload: bytes, timeout: float | None = None) -> bytes:
        """Send a verb and return its answer.

        Raises:
            NotSent, DaemonLost, DaemonSilent, ProtocolError: as for `begin` and `answer_to`.
        """
        return self.answer_to(self.begin(verb, payload), timeout)

    def begin(self, verb: Verb, payload: bytes) -> Any:
        """Send a verb; return the pending answer, for `answer_to`.

        Raises:
            NotSent: the connection was already broken.
            DaemonSilent: the daemon does not read.
        """
        try:
            return self.async_request(HANDLE_VERB, str(verb), payload)
        except (EOFError, OSError) as error:
            raise self._lost(error, NotSent) from error

    def answer_to(self, pending: Any, timeout: float | None = None) -> bytes:
        """Wait for the answer to a verb.

        Raises:
            DaemonLost: the connection broke.
            DaemonSilent: nothing arrived for `timeout` seconds (by default the connection's patience).
            ProtocolError: the daemon refused the request.
        """
        # Not `pending.ready`, which would itself serve frames.
        while not pending._is_ready:
            self._serve_within(timeout)
        self.phase = ""
        answer: bytes = pending.value
        return answer

    def is_over(self, pending: Any) -> bool:
        """Return whether the answer to a verb has arrived, or the connection is broken. Does not wait."""
        with contextlib.suppress(EOFError, OSError):
            while not pending._is_ready:
                if not self.serve(0):
                    return False
        return True

    def send_frame(self, kind: int, body: bytes, attachments: "Sequence[HostArray]" = ()) -> None:
        """Send a frame of jitserver's own kinds.

        Raises:
            NotSent, DaemonSilent: as for `request`.
        """
        channel = self._channel
        try:
            if attachments or len(body) >= MAX_FRAME_BYTES:
                channel.send(bytes((kind,)) + body, attachments)
            else:
                with channel.send_lock:
                    channel.stream.sock.sendall(LENGTH.pack(len(body) + 1) + bytes((kind,)) + body)
        except (EOFError, OSError) as error:
            raise self._lost(error, NotSent) from error

    def reply(self, run: bytes = b"") -> Reply:
        """Send a Run, if given, and wait for the next reply to a Run: usually one write and one read.

        Raises:
            NotSent, DaemonLost, DaemonSilent: as for `request`.
        """
        channel = self._channel
        if run:
            try:
                if len(run) < MAX_FRAME_BYTES:
                    with channel.send_lock:
                        channel.stream.sock.sendall(LENGTH.pack(len(run) + 1) + _RUN + run)
                else:
                    channel.send(_RUN + run)  # raises ProtocolError
            except (EOFError, OSError) as error:
                raise self._lost(error, NotSent) from error
        while not self._replies:
            try:
                message = channel.recv_at_once()
            except (EOFError, OSError) as error:
                raise self._lost(error) from error
            if message is None:
                self._serve_within()
            elif message[0] == REPLY:
                self.phase = ""
                reply: Reply = _decode(message[1:])
                return reply
            else:
                self.act_on(message)
        return self._replies.popleft()

    def reply_if_ready(self) -> Reply | None:
        """Return the next reply to a Run if it has arrived, else None.

        Raises:
            DaemonLost, DaemonSilent: as for `request`.
        """
        while not self._replies:
            try:
                message = self._channel.recv_if_ready()
            except (EOFError, OSError) as error:
                raise self._lost(error) from error
            if message is None:
                return None
            if message[0] == REPLY:
                reply: Reply = _decode(message[1:])
                return reply
            self.act_on(message)
        return self._replies.popleft()

    def on_frame(self, kind: int, body: bytes) -> None:
        """Handle a reply, a BUSY, a callback, or a lease."""
        if kind == REPLY:
            self.phase = ""
            self._replies.append(_decode(body))
        elif kind == BUSY:
            self.phase = decoded(body, Busy).phase
            events.log.begin(self.phase)
        elif kind == CALLBACK and self.on_callback is not None:
            self.on_callback(body)
        elif kind == LEASED:
            self._leased = decoded(body, Leased)
        else:
            super().on_frame(kind, body)

    def read_attachment(self, nbytes: int) -> "HostArray":
        """Read an attachment of `nbytes` bytes.

        Raises:
            DaemonLost, DaemonSilent: as for `request`.
        """
        # Imported late: loads numpy, which the command line does not need.
        from jitclient.wire.array_transport import allocate

        raw = allocate(nbytes)
        try:
            self._channel.recv_into(raw.data)
        except (EOFError, OSError) as error:
            raise self._lost(error) from error
        return raw

    def lease(self, nbytes: int) -> "Block | None":
        """Lease shared memory; return None if the daemon has none to lend, or this process cannot map it.

        Raises:
            ProtocolError: the daemon's file descriptor is not the block that it announced.
            NotSent, DaemonLost, DaemonSilent: as for `request`.
        """
        from jitclient.wire.shared_memory import received

        with self._channel.stream.receiving_fds() as fds:
            self._leased = None
            self.send_frame(LEASE, _encode(Lease(nbytes)))
            leased = self._await_lease()
            if not leased.block:
                return None
            try:
                # The kernel does not deliver the file descriptor if this process has none left.
                block = received(leased.block, leased.capacity, fds[0]) if fds else None
            except OSError:
                block = None
        if block is None:
            self.return_blocks(Return(retired=(leased.block,)))
        return block

    def _await_lease(self) -> Leased:
        while True:
            leased, self._leased = self._leased, None
            if leased is not None:
                return leased
            self._serve_within()

    def return_blocks(self, message: Return) -> None:
        """Return blocks to the daemon."""
        self.send_frame(RETURN, _encode(message))

    def abandon(self) -> None:
        """Forget the connection without closing it: in a forked child, it belongs to the parent."""
        self._closed = True
        self._channel.stream.abandon()

    def _serve_within(self, timeout: float | None = None) -> None:
        try:
            if not self.serve(timeout):
                raise TimeoutError
        except (EOFError, OSError) as error:
            raise self._lost(error, seconds=timeout) from error

    def _lost(
        self, error: EOFError | OSError, kind: type[DaemonLost] = DaemonLost, seconds: float | None = None
    ) -> DaemonLost:
        """Return the exception for an error of the socket: `kind`, or DaemonSilent after a timeout."""
        # ETIMEDOUT comes from TCP keepalive: the connection is broken.
        if not isinstance(error, (TimeoutError, BlockingIOError)) or error.errno == errno.ETIMEDOUT:
            return kind(f"the connection to the daemon broke: {error}")
        action = "has not read" if kind is NotSent else "has sent nothing"
        return DaemonSilent(f"the daemon {action} for {self._patience if seconds is None else seconds:g} s")


class _Nothing:
    """Empty service: the client offers no verbs."""

    def on_disconnect(self, connection: Connection) -> None:
        pass
