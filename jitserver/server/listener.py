"""rpyc's threaded server on a given socket. It survives a lack of descriptors or threads.

rpyc's own `accept` ends the server on any error, silently, for instance at the limit of open files.
"""

import logging
import os
import select
import socket
import threading

from rpyc.core.service import Service
from rpyc.utils.server import ThreadedServer

from jitclient.wire.address import peer
from jitserver.platform.shared_memory import Pool
from jitserver.server.connection import Answer, AnswerPlain, DaemonConnection
from jitserver.server.heartbeat import Heartbeat
from jitserver.sessions.registry import Sessions

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1


class Listener(ThreadedServer):  # type: ignore[misc]
    """Accepts connections of this user's processes, and serves each in a thread of its own."""

    def __init__(
        self,
        service: Service,
        answer: Answer,
        plain: AnswerPlain,
        sessions: Sessions,
        listener: socket.socket,
        pool: Pool,
    ) -> None:
        # Instead of rpyc's __init__, which would bind a socket.
        self.service = service
        self.listener = listener
        self.clients: set[socket.socket] = set()
        self.logger = log
        self.active = True
        self.auto_register = False
        self._closed = False
        self._answer = answer
        self._answer_plain = plain
        self._pool = pool
        self._sessions = sessions
        self._closing, self._close_signal = socket.socketpair()
        self._accepts_no_more = threading.Event()
        self.heartbeat = Heartbeat(sessions)

    def start(self) -> None:
        """Accepts connections until `stop_accepting`."""
        self.heartbeat.start()
        poller = select.poll()
        poller.register(self.listener, select.POLLIN)
        poller.register(self._closing, select.POLLIN)
        while self.active:
            poller.poll()
            if self.active:
                self.accept()
        self.listener.close()  # not shut down: if systemd opened it, systemd keeps listening
        self._accepts_no_more.set()

    def accept(self) -> None:
        """Accepts one connection. If that fails, waits a little; the next call tries again."""
        try:
            sock, _ = self.listener.accept()
        except OSError as error:
            log.warning("cannot accept a connection now: %s", error)
            self._accepts_no_more.wait(_RETRY_SECONDS)
            return
        caller = peer(sock)
        if caller.uid not in (os.getuid(), 0):  # also over a network, where the kernel knows no uid
            log.warning("refused a connection of uid %d", caller.uid)
            sock.close()
            return
        self.admit(sock, caller.pid)

    def admit(self, sock: socket.socket, pid: int) -> None:
        """Serves a connected stream socket in a thread of its own.

        Args:
            sock: of any family. The caller has made sure that the peer may run code here.
            pid: the process of the peer; 0 if it is on another machine.
        """
        self.clients.add(sock)
        try:
            threading.Thread(target=self._serve, args=(sock, pid), name="connection", daemon=True).start()
        except RuntimeError as error:
            log.warning("closed a connection, as there is no thread for it: %s", error)
            self.clients.discard(sock)
            sock.close()

    def stop_accepting(self) -> None:
        """Accepts no more connections. Open ones stay."""
        if self.active:
            self.active = False
            self._close_signal.send(b".")
            self._accepts_no_more.wait()
            for end in (
                self._close_signal,
                self._closing,
            ):  # the other thread may have ended without reading the signal
                end.close()

    def close(self) -> None:
        """Accepts no more connections, and closes the open ones."""
        self.stop_accepting()
        self.heartbeat.stop()
        self.close_connections()

    def close_connections(self) -> None:
        """Closes all connections, also during calls."""
        for sock in list(self.clients):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _serve(self, sock: socket.socket, pid: int) -> None:
        connection: DaemonConnection | None = None
        try:
            connection = DaemonConnection(self.service, sock, self._answer, self._answer_plain, pid, self._pool)
            self.heartbeat.connections.add(connection)
            connection.serve_all()
        finally:
            self.clients.discard(sock)
            sock.close()
            if connection is not None:
                self.heartbeat.connections.discard(connection)
                if connection.session is not None:
                    self._sessions.leave(connection.session, pid)
