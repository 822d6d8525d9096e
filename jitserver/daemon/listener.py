"""rpyc's threaded server on a given socket. It survives a lack of descriptors, memory or threads.

rpyc's own `accept` ends the server on any error, silently, for instance at the limit of open files.
"""

import contextlib
import errno
import logging
import os
import select
import socket
import threading
import weakref
from _thread import start_new_thread

from rpyc.core.service import Service
from rpyc.utils.server import ThreadedServer

from jitclient.core.threads import Thread
from jitclient.wire.address import peer
from jitserver.daemon.connection import Answer, AnswerPlain, DaemonConnection
from jitserver.daemon.heartbeat import Heartbeat
from jitserver.daemon.sessions.registry import Sessions
from jitserver.system.shared_memory import Pool

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1
_END_SECONDS = 1.0  # for a thread to end that was told to
_RESERVE = 16  # connections for commands, and for refusals, where there are as many as there may be
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)  # what is not a listening socket any more


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
        most: int = 1000,
    ) -> None:
        # Instead of rpyc's __init__, which would bind a socket.
        self.service = service
        self.listener = listener
        self.clients = weakref.WeakSet[socket.socket]()  # a thread that cannot begin leaves its socket to nobody
        self.logger = log
        self.active = True
        self.auto_register = False
        self._closed = False
        self._answer = answer
        self._answer_plain = plain
        self._pool = pool
        self._sessions = sessions
        self._most = most
        self._refusing = False
        self._signals, self._signal = socket.socketpair()
        self._accepts_no_more = threading.Event()
        self.heartbeat = Heartbeat(sessions)
        self.thread = Thread(self._accept_all, "listener")

    def start(self) -> None:
        """Starts the threads: one accepts connections until `stop_accepting`, the other is the heartbeat."""
        self.heartbeat.thread.start()
        self.thread.start()

    def _accept_all(self) -> None:
        failing = False
        try:
            while self.active:
                try:
                    if self._is_called():
                        self.accept()
                    failing = False
                except OSError as error:
                    if error.errno in _BROKEN:
                        raise
                    if not failing:  # ten times a second would fill the disk
                        log.warning("cannot accept connections now: %s", error)
                    failing = True
                    self._accepts_no_more.wait(_RETRY_SECONDS)
        finally:
            with contextlib.suppress(OSError):
                self.listener.close()  # not shut down: if systemd opened it, systemd keeps listening
            self._accepts_no_more.set()

    def _is_called(self) -> bool:
        """Waits for a connection; False if there is something else to do."""
        listener, poller = self.listener, select.poll()
        poller.register(listener, select.POLLIN)
        poller.register(self._signals, select.POLLIN)
        if self._signals.fileno() in dict(poller.poll()):
            self._signals.recv(1)
        if listener is not self.listener:
            listener.close()
            return False
        return self.active

    def move_to(self, listener: socket.socket) -> None:
        """Listens on another socket from now on. Open connections stay."""
        self.listener = listener
        self._signal.send(b".")

    def accept(self) -> None:
        """Accepts one connection.

        Raises:
            OSError: it cannot now.
        """
        sock, _ = self.listener.accept()
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
        refusing, self._refusing = self._refusing, len(self.clients) >= self._most + _RESERVE
        if self._refusing:
            if not refusing:
                log.warning("closing connections: there are %d already", len(self.clients))
            sock.close()
            return
        self.clients.add(sock)
        try:
            start_new_thread(self._serve, (sock, pid))  # whether it begins, we do not wait to see
        except RuntimeError as error:
            log.warning("closed a connection, as there is no thread for it: %s", error)
            self.clients.discard(sock)
            sock.close()

    def stop_accepting(self) -> None:
        """Accepts no more connections. Open ones stay."""
        if self.active:
            self.active = False
            with contextlib.suppress(OSError):
                self._signal.send(b".")
            self._accepts_no_more.wait(_END_SECONDS)
            for end in (self._signal, self._signals):  # its thread may have ended without reading the signal
                with contextlib.suppress(OSError):
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
            connection.is_surplus = len(self.clients) > self._most
            self.heartbeat.connections.add(connection)
            connection.serve_all()
        finally:
            self.clients.discard(sock)
            sock.close()
            if connection is not None:
                self.heartbeat.connections.discard(connection)
                if connection.session is not None:
                    self._sessions.leave(connection.session, connection.pid)
