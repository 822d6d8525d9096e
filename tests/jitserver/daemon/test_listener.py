"""The listener: it survives a lack of descriptors and threads, and stops for good."""

import contextlib
import errno
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rpyc.core.service import Service

from jitclient.errors import DaemonUnavailable, ProtocolError
from jitclient.wire.address import Address
from jitclient.wire.channel import WireChannel
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import Verb
from jitclient.wire.stream import WireStream
from jitserver.daemon import connection as connection_module
from jitserver.daemon import listener as listener_module
from jitserver.daemon.listener import Listener
from jitserver.daemon.sessions.registry import Sessions
from jitserver.system.shared_memory import BlockPool


class Short:
    """A socket whose `accept` fails at first, as without descriptors."""

    def __init__(self, listener: socket.socket, refusals: int) -> None:
        self._listener = listener
        self._refusals = refusals

    def accept(self) -> Any:
        if self._refusals:
            self._refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


@pytest.fixture
def address(short_path: Path) -> Address:
    return Address(short_path / "d.sock")


@pytest.fixture
def serving(address: Address) -> Iterator[Any]:
    started: list[Listener] = []

    def start(refusals: int = 0, door: socket.socket | None = None) -> Listener:
        sock: Any = Short(door or address.listen(), refusals)
        listener = Listener(Service(), Sessions(), sock, BlockPool(0))
        listener.start()
        started.append(listener)
        return listener

    yield start
    for listener in started:
        listener.close()
        listener.thread.join(60)
        assert not listener.thread.is_alive()


def test_a_lack_of_descriptors_does_not_end_it(
    serving: Any, address: Address, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    listener = serving(refusals=2)
    with address.connect(60):
        until(lambda: listener.clients, "the connection to be taken")
    until(lambda: not listener.clients, "the connection to go")
    assert caplog.text.count("Too many open files") == 1


def test_a_lack_of_memory_does_not_end_it(
    serving: Any, address: Address, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Poll:
        """Fails twice."""

        def __init__(self) -> None:
            self._poll = poll()
            self.register = self._poll.register
            self.refusals = 2

        def poll(self) -> Any:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return self._poll.poll()

    poll = select.poll
    monkeypatch.setattr(select, "poll", Poll)
    listener = serving()
    monkeypatch.undo()
    with address.connect(60):
        until(lambda: listener.clients, "the connection to be taken")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_socket_that_listens_no_more_ends_its_thread(serving: Any, address: Address) -> None:
    listener = serving()
    listener.listener.shutdown(socket.SHUT_RDWR)
    listener.thread.join(60)
    assert not listener.thread.is_alive()


def refuse(*_: object) -> int:
    raise RuntimeError("can't start new thread")


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("start", [refuse, lambda *_: 1], ids=["no thread", "a thread that cannot begin"])
def test_a_lack_of_threads_costs_one_connection_only(
    serving: Any, address: Address, until: Any, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    listener = serving()
    with monkeypatch.context() as patch:
        patch.setattr("jitserver.daemon.listener.start_new_thread", start)
        with address.connect(60) as refused:
            assert refused.recv(1) == b""
    until(lambda: not listener.clients, "the connection to go")
    with address.connect(60):
        until(lambda: listener.clients, "the connection to be taken")


def test_another_users_process_is_refused(serving: Any, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    from jitclient.wire.address import Peer

    serving()
    monkeypatch.setattr("jitserver.daemon.listener.peer", lambda sock: Peer(1, 12345))
    with address.connect(60) as sock:
        assert sock.recv(1) == b""


def test_network_connections_are_refused(serving: Any) -> None:
    door = socket.create_server(("127.0.0.1", 0))
    serving(door=door)
    with socket.create_connection(door.getsockname()) as sock:
        assert sock.recv(1) == b""


def test_a_connection_that_is_passed_to_it_is_served(serving: Any, until: Any) -> None:
    listener = serving()
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as sock:
        listener.admit(door.accept()[0], pid=0)
        client = ClientConnection(WireChannel(WireStream(sock)))
        with pytest.raises(ProtocolError, match="exposed_status"):  # the service of these tests has no verbs
            client.request(Verb.STATUS, b"")
        client.close()
    until(lambda: not listener.clients, "the connection to go")


def test_after_stop_accepting_only_open_connections_are_served(
    serving: Any, address: Address, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_EXIT_SECONDS", 60)
    listener = serving()
    with address.connect(60) as inside:
        until(lambda: listener.clients, "the connection to be taken")
        listener.stop_accepting()
        with pytest.raises(ConnectionError):
            address.connect(60)
        assert listener.clients
        listener.close()
        assert inside.recv(1) == b""


def test_it_stops_also_if_a_client_connects_at_the_same_moment(serving: Any, address: Address) -> None:
    listener = serving()

    class Late:
        """The close signal, which is sent late: the connecting client has already woken the other thread."""

        def __init__(self, signal: socket.socket) -> None:
            self.send, self.close = self._send, signal.close
            self._wake_sender = signal

        def _send(self, data: bytes) -> int:
            with contextlib.suppress(DaemonUnavailable):  # the other thread may have ended without it
                address.connect(60).close()
            assert listener._stopped.wait(60)
            return self._wake_sender.send(data)

    listener._wake_sender = Late(listener._wake_sender)
    listener.stop_accepting()
    assert listener._wake_receiver.fileno() == -1


def test_a_peer_without_a_hello_is_disconnected(
    serving: Any, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_SECONDS_WITHOUT_SESSION", 0.05)
    serving()
    with address.connect(60) as silent:
        while silent.recv(1000):  # rpyc announces that it closes
            pass
