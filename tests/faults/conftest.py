"""The fixtures of the fault tests: a daemon that can be looked into, clients of it, and peers that are none of ours."""

import contextlib
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

import jitclient
from jitclient.core.settings import Settings
from jitclient.session import launch
from jitclient.session import process as client_process
from jitclient.session.exceptions import answered
from jitclient.session.handshake import ask
from jitclient.session.session import Session
from jitclient.wire.address import Address
from jitclient.wire.channel import WireChannel
from jitclient.wire.connection import ClientConnection
from jitclient.wire.introspection import Status
from jitclient.wire.messages import PROTOCOL, Hello, Verb, Welcome
from jitclient.wire.stream import WireStream
from jitserver.store.journal import SLOT, read

AT_ONCE_SECONDS = 30
"""For what happens at once: half of the time that a session waits for its client."""


@dataclasses.dataclass
class Daemon:
    """A daemon of a test's own."""

    address: str
    process: subprocess.Popen[str]

    @property
    def path(self) -> Path:
        return Address.parse(self.address).path

    def counts(self) -> Status:
        found: Status = ask(Settings(address=self.address), Verb.STATUS, None, Status)
        return found

    def descriptors(self) -> list[Path]:
        found = []
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if "memfd:jitserver" not in os.readlink(path):  # warm shared memory is kept, within bounds
                    found.append(path)
        return found

    def sockets(self) -> list[Path]:
        """Return the descriptors that are sockets."""
        found = []
        for path in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if path.is_socket():
                    found.append(path)
        return found

    def holdings(self) -> dict[str, int]:
        """Count the things that a client or peer could leave behind in it."""
        counts = self.counts()
        process = Path(f"/proc/{self.process.pid}")
        return {
            "sessions": counts.sessions,
            "arrays": counts.arrays,
            "lent_bytes": counts.lent_bytes,
            "threads": sum(1 for _ in (process / "task").iterdir()),
            "descriptors": len(self.descriptors()),
        }

    def phases(self) -> list[str]:
        """Return the phases of its threads' programs, from its crash journal."""
        mapped = {line.split()[-1] for line in Path(f"/proc/{self.process.pid}/maps").read_text().splitlines()}
        data = b"".join(Path(name).read_bytes() for name in mapped if name.endswith(".journal"))
        noted = [read(data[start : start + SLOT]) for start in range(0, len(data), SLOT)]
        return [work.phase for work in noted if work is not None]

    def pids(self) -> list[int]:
        return daemons_at(self.address)

    def settles(self, before: dict[str, int], until: Callable[..., Any]) -> None:
        """Waits until it holds no more of anything than it did."""

        def settled() -> bool:
            now = self.holdings()
            return all(now[name] <= before[name] for name in before)

        try:
            until(settled, "the daemon to let go", seconds=AT_ONCE_SECONDS)
        except AssertionError:
            held = sorted(os.readlink(path) for path in self.descriptors())
            raise AssertionError(f"before: {before}, now: {self.holdings()}, with {held}") from None


Serve = Callable[..., contextlib.AbstractContextManager[Daemon]]
ClientOf = Callable[[str], contextlib.AbstractContextManager[Session]]


@pytest.fixture(scope="session")
def serve(new_daemon: Callable[..., Any], until: Callable[..., Any]) -> Serve:
    """Starts a daemon, with options and environment of its own."""

    @contextlib.contextmanager
    def start(*options: str, **env: str) -> Iterator[Daemon]:
        with tempfile.TemporaryDirectory(prefix="js-") as folder:
            address = f"unix:{folder}/d.sock"
            with new_daemon(address, *options, env=env) as process:
                daemon = Daemon(address, process)
                try:
                    yield daemon
                except BaseException:
                    log = launch.log_path(Address.parse(address))  # of those that followed it
                    print(log.read_text(errors="replace") if log.exists() else "no daemon followed")
                    raise
                finally:
                    _end_successor(daemon, until)

    return start


def _end_successor(daemon: Daemon, until: Callable[..., Any]) -> None:
    """Ends the daemon that a client started in the place of one that died, also one that is only about to serve."""
    for pid in daemons_at(daemon.address):
        if pid != daemon.process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            until(lambda pid=pid: not is_running(pid), "the new daemon to end")


def daemons_at(address: str) -> list[int]:
    """The processes that serve, or are about to serve, at an address."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and address.encode() in words:
            found.append(int(process.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(scope="session")
def client_of() -> ClientOf:
    """Makes this process a client of the daemon at an address, for a while."""
    return _client_of


@contextlib.contextmanager
def _client_of(address: str) -> Iterator[Session]:
    before = client_process.current
    connected = jitclient.connect(address)
    try:
        yield connected
    finally:
        connected.close()
        client_process.current = before


@pytest.fixture(scope="module")
def victim(serve: Serve) -> Iterator[Daemon]:
    """Yield a daemon for all tests of a module, which has run something, and has its compiler's threads."""
    with serve() as daemon:
        with _client_of(daemon.address):
            assert_works()
            np.asarray(loop(np.zeros((2, 2), np.float32)))
        yield daemon


@pytest.fixture
def unharmed(victim: Daemon, until: Callable[..., Any]) -> Iterator[Daemon]:
    """Yield the module's daemon; afterwards, it must serve another client, and hold nothing more than before."""
    before = victim.holdings()
    yield victim
    with _client_of(victim.address):
        assert_works()
    victim.settles(before, until)


@pytest.fixture(scope="session")
def at_once(until: Callable[..., Any]) -> Callable[..., Any]:
    """Polls until a condition holds, for less time than a session waits for its client."""
    return functools.partial(until, seconds=AT_ONCE_SECONDS)


@pytest.fixture(scope="session")
def works() -> Callable[[], None]:
    """Makes a call in this process, and looks at what comes of it."""
    return assert_works


@jitclient.jit
def double(x: Any) -> Any:
    return x * 2


@jitclient.jit
def loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 2, lambda _, c: jax.numpy.tanh(c @ c), x)


def assert_works() -> None:
    assert float(double(np.float32(21))) == 42


class Peer:
    """A client that keeps to no rule."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.token = b""
        self.connection = ClientConnection(WireChannel(WireStream(Address.parse(address).connect())))
        self.channel = self.connection._channel
        self.stream = self.channel.stream

    def hello(self, token: bytes = b"") -> Welcome:
        """Has a session from now on."""
        hello = Hello(PROTOCOL, "0", "3", {}, token)
        welcome: Welcome = self.ask(Verb.HELLO, hello, Welcome)
        self.token = welcome.token
        return welcome

    def ask(self, verb: str, message: Any, answer: Any = None) -> Any:
        reply = self.connection.request(verb, msgspec.msgpack.encode(message))  # type: ignore[arg-type]
        return answered(reply, answer)

    def is_cut_off(self) -> bool:
        """Whether the daemon hangs up, once it has said what it has to say."""
        try:
            while True:
                if not self.channel.poll(AT_ONCE_SECONDS):
                    return False
                self.channel.recv()
        except EOFError:
            return True

    def close(self) -> None:
        """Hangs up; comes back once more to end its session, for which the daemon would wait."""
        self.connection.close()
        if self.token:
            again = Peer(self.address)
            assert again.hello(self.token).resumed
            again.ask(Verb.GOODBYE, None)
            again.connection.close()


@pytest.fixture
def peer(unharmed: Daemon) -> Iterator[Peer]:
    """A peer of the daemon that must stay unharmed."""
    made = Peer(unharmed.address)
    yield made
    made.close()


@pytest.fixture
def peer_of() -> type[Peer]:
    """Makes this process a peer of the daemon at an address."""
    return Peer


LATE_SECONDS = 200
"""Patience with the next line of a client, below that of pytest with a test."""


class Client:
    """A client in a process of its own, which reports events as lines on its standard output."""

    def __init__(self, path: Path, address: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            env={**os.environ, "JITSERVER_ADDRESS": address, "PYTHONUNBUFFERED": "1", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = self.process.pid

    def says(self, *words: str) -> None:
        """Waits for its next lines. If one is late, the error has the stacks of its threads."""
        assert self.process.stdout is not None
        for word in words:
            # `SIGABRT` makes its faulthandler print them.
            late = threading.Timer(LATE_SECONDS, self.kill, [signal.SIGABRT])
            late.start()
            line = self.process.stdout.readline().strip()
            late.cancel()
            if line != word:
                self.process.kill()
                raise AssertionError(f"{line!r} where {word!r} was expected\n{self.process.communicate()[1]}")

    def goes_on(self) -> None:
        """Lets it read a line from its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def kill_all(self) -> None:
        """Kills it and the children that it forked, which hold its pipes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.communicate()

    def ends(self) -> str:
        """Waits for its clean end; returns what it wrote to standard error."""
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, f"{out}\n{err}"
        return err


PREAMBLE = """
import faulthandler, gc, os, signal, sys, threading, time
import numpy as np
import jitclient
from jitclient import errors

signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest itself may run with Ctrl-C ignored
faulthandler.enable()
gc.disable()  # JAX has a callback in each collection, where Python swallows an interrupt
"""


@pytest.fixture
def start_client(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Starts a program as a client of a daemon; whatever still runs at the end is killed."""
    started: list[Client] = []

    def start(daemon: Daemon | str, source: str, **env: str) -> Client:
        path = tmp_path / f"client{len(started)}.py"
        path.write_text(PREAMBLE + textwrap.dedent(source))
        address = daemon if isinstance(daemon, str) else daemon.address
        started.append(Client(path, address, env))
        return started[-1]

    yield start
    for client in started:
        client.kill_all()
