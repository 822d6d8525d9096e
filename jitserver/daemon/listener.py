"""rpyc's threaded server on a given socket, made to survive a lack of file descriptors, memory or threads.

rpyc's own `accept` silently stops the server on any error, for instance at the limit of open files.
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
from jitserver.daemon.connection import DaemonConnection
from jitserver.daemon.frame_budget import FrameBudget
from jitserver.daemon.heartbeat import Heartbeat
from jitserver.daemon.sessions.registry import Sessions
from jitserver.system import alternate_stack
from jitserver.system.shared_memory import BlockPool

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.1
# Time for the accepting thread to exit after it was signalled.
_EXIT_SECONDS = 1.0
# Connections beyond the maximum, for CLI commands and for refusals.
_RESERVE = 16
# Errors of a listening socket that can no longer be used.
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)


class Listener(ThreadedServer):  # type: ignore[misc]
    """Server that accepts connections of this user's processes, and serves each in its own thread."""

    def __init__(
        self,
        service: Service,
        sessions: Sessions,
        listener: socket.socket,
        pool: BlockPool,
        max_connections: int = 1000,
    ) -> None:
        # Set rpyc's attributes directly: its __init__ would bind a socket.
        self.service = service
        self.listener = listener
        # A weak set, because a thread that fails to start cannot remove its socket.
        self.clients = weakref.WeakSet[socket.socket]()
        self._changing_clients = threading.Lock()
        self.logger = log
        self.active = True
        self.auto_register = False
        self._closed = False
        self._pool = pool
        self._frames = FrameBudget()
        self._sessions = sessions
        self._max_connections = max_connections
        self._refusing = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._stopped = threading.Event()
        self.heartbeat = Heartbeat(sessions)
        self.thread = Thread(self._accept_all, "listener")

    def start(self) -> None:
        """Start the threads: one accepts connections until `stop_accepting`, the other is the heartbeat."""
        self.heartbeat.thread.start()
        self.thread.start()

    def _accept_all(self) -> None:
        failing = False
        try:
            while self.active:
                try:
                    if self._wait_for_connection():
                        self.accept()
                    failing = False
                except OSError as error:
                    if error.errno in _BROKEN:
                        raise
                    if not failing:  # ten warnings a second would fill the disk
                        log.warning("listener: cannot accept connections at the moment (%s)", error)
                    failing = True
                    self._stopped.wait(_RETRY_SECONDS)
        finally:
            with contextlib.suppress(OSError):
                # Do not shut the socket down: if systemd opened it, systemd continues to listen.
                self.listener.close()
            self._stopped.set()

    def _wait_for_connection(self) -> bool:
        """Wait for a connection; return False if the socket was replaced or the server stops."""
        listener, poller = self.listener, select.poll()
        poller.register(listener, select.POLLIN)
        poller.register(self._wake_receiver, select.POLLIN)
        if self._wake_receiver.fileno() in dict(poller.poll()):
            self._wake_receiver.recv(1)
        if listener is not self.listener:
            listener.close()
            return False
        return self.active

    def move_to(self, listener: socket.socket) -> None:
        """Listen on another socket from now on. Open connections stay open."""
        self.listener = listener
        self._wake_sender.send(b".")

    def accept(self) -> None:
        """Accept one connection; close it if the peer is a process of a different user.

        Raises:
            OSError: no connection can be accepted now.
        """
        sock, _ = self.listener.accept()
        caller = peer(sock)
        # This also refuses network connections, whose uid the kernel does not know.
        if caller.uid not in (os.getuid(), 0):
            log.warning("listener: refused a connection of uid %d", caller.uid)
            sock.close()
            return
        self.admit(sock, caller.pid)

    def admit(self, sock: socket.socket, pid: int) -> None:
        """Serve a connected stream socket in its own thread.

        Args:
            sock: a socket of any family. The caller has verified that the peer may run code here.
            pid: the process of the peer; 0 if the peer is on another machine.
        """
        refusing, self._refusing = self._refusing, len(self.clients) >= self._max_connections + _RESERVE
        if self._refusing:
            if not refusing:
                log.warning("listener: refusing connections, because %d are open", len(self.clients))
            sock.close()
            return
        with self._changing_clients:
            self.clients.add(sock)
        try:
            # Start the thread without waiting for it to run, unlike `threading.Thread.start`.
            start_new_thread(self._serve, (sock, pid))
        except RuntimeError as error:
            log.warning("listener: closed a connection, because no thread can be started (%s)", error)
            self._forget(sock)
            sock.close()

    def stop_accepting(self) -> None:
        """Stop accepting connections. Open connections stay open."""
        if self.active:
            self.active = False
            with contextlib.suppress(OSError):
                self._wake_sender.send(b".")
            self._stopped.wait(_EXIT_SECONDS)
            for end in (
                self._wake_sender,
                self._wake_receiver,
            ):  # its thread may have exited without reading the signal
                with contextlib.suppress(OSError):
                    end.close()

    def close(self) -> None:
        """Stop accepting connections, and close the open ones."""
        self.stop_accepting()
        self.heartbeat.stop()
        self.close_connections()

    def close_connections(self) -> None:
        """Close all connections, including those with running calls."""
        with self._changing_clients:
            open_now = list(self.clients)
        for sock in open_now:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _forget(self, sock: socket.socket) -> None:
        with self._changing_clients:
            self.clients.discard(sock)

    def _serve(self, sock: socket.socket, pid: int) -> None:
        connection: DaemonConnection | None = None
        try:
            alternate_stack.install()
            connection = DaemonConnection(self.service, sock, pid, self._pool, self._frames)
            connection.is_surplus = len(self.clients) > self._max_connections
            self.heartbeat.connections.add(connection)
            connection.serve_all()
        finally:
            self._forget(sock)
            sock.close()
            if connection is not None:
                self.heartbeat.connections.discard(connection)
                if connection.session is not None:
                    self._sessions.leave(connection.session, connection.pid)
                    self._sessions.limit_absent(self._max_connections)
