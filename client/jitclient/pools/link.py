"""Link of the driver to one worker: the command that started it, its frames, and what it prints."""

import collections
import contextlib
import io
import math
import select
import socket
import subprocess
from typing import Any

from jitclient.core.clock import monotonic
from jitclient.core.notices import print_line
from jitclient.core.threads import Thread
from jitclient.errors import ProtocolError, WorkerLost
from jitclient.pools import versions
from jitclient.pools.frames import Frames
from jitclient.pools.hosts import Host
from jitclient.pools.messages import GREETING, FromWorker, Hello

# Long enough for a user who types a password, and for a machine that is busy.
START_SECONDS = 180.0
_EXIT_SECONDS = 10.0
_KILL_SECONDS = 2.0
# A process that a task started may hold the pipe.
_RELAY_SECONDS = 1.0
_QUOTED_LINES = 20
_MAX_NOISE_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 20


class Link:
    """Worker, as the driver sees it. `greet` comes before all else; any thread may kill it at any time.

    Args:
        host: where to start it.
        label: name of the worker, before the lines that it prints.
        patience: seconds without a sign of life after which the worker is lost.

    Raises:
        JitserverError: the command cannot be run.
    """

    def __init__(self, host: Host, label: str, patience: float) -> None:
        self.host, self.label = host, label
        self._lines: collections.deque[str] = collections.deque(maxlen=_QUOTED_LINES)
        self._is_greeted = False
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        with theirs:
            try:
                self._process = host.start(theirs)
            except BaseException:
                ours.close()
                raise
        self._socket = ours
        self._relay = Thread(self._print_lines, f"pool: output of {label}")
        self._relay.start()
        self._patience = patience

    def greet(self) -> None:
        """Wait for the worker's greeting, and compare versions.

        Raises:
            JitserverError: there is no worker; the message says why.
            Incompatible: the worker has other versions.
        """
        patience = math.inf if self.host.has_queue else START_SECONDS
        received, deadline = b"", monotonic() + patience
        while not received.endswith(GREETING):
            if not _is_readable(self._socket, deadline) or len(received) > _MAX_NOISE_BYTES:
                said = f" The remote shell printed {received[:200]!r}" if received else ""
                raise WorkerLost(f"pool: no worker answers at {self.host.name} within {patience:.0f} s.{said}")
            # Not beyond the greeting, which frames follow.
            part = self._socket.recv(len(GREETING) - _overlap(received))
            if not part:
                self._exit()
                raise self.host.refusal(self._process.returncode, "\n".join(self._lines))
            received += part
        self._frames = Frames(self._socket.fileno(), self._socket.fileno(), max(START_SECONDS, self._patience))
        self._is_greeted = True
        try:
            message, _ = self.receive()
        except (OSError, EOFError) as error:
            raise WorkerLost(f"pool: the worker at {self.host.name} exited during its start ({error})") from error
        if not isinstance(message, Hello):
            raise ProtocolError(f"pool: the worker at {self.host.name} began with {type(message).__name__}")
        versions.check(versions.installed(), message.versions, self.host.name, self.host.pip())

    def begin_watch(self) -> None:
        """Lose the worker if it gives no sign of life; during its start, its machine may be busy for longer."""
        self._frames.patience = self._patience

    def send(self, message: Any, body: bytes = b"") -> None:
        """Send a message. Raises: OSError: the worker is lost."""
        self._frames.send(message, body)

    def receive(self) -> tuple[Any, bytearray]:
        """Return the next message of the worker. Raises: OSError, EOFError, ProtocolError: the worker is lost."""
        return self._frames.receive(FromWorker)  # type: ignore[arg-type]

    def kill(self) -> None:
        """End the command; a worker that still runs notices that the connection is closed."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # A worker that finds its connection closed ends its tasks' processes, too. SIGKILL would not end a job of srun.
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_SECONDS)
        self._relay.join(_RELAY_SECONDS)

    def close(self) -> None:
        """Wait until the worker has exited, which it was asked to do."""
        self._exit()
        self.kill()
        self._socket.close()

    def _exit(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        self._relay.join(_RELAY_SECONDS)

    def cause_of(self, error: Exception) -> str:
        """Return why the worker is lost whose connection failed with `error`; end what is left of it."""
        if isinstance(error, EOFError):
            self._exit()
            status = self._process.returncode
            if status is not None:
                error = EOFError(f"signal {-status}" if status < 0 else f"exit status {status}")
        self.kill()
        return str(error)

    def forget_lines(self) -> None:
        """Forget what the worker has printed until now."""
        self._lines.clear()

    def last_lines(self) -> str:
        """Return what the worker has printed last."""
        return "\n".join(self._lines)

    def _print_lines(self) -> None:
        """Print what the worker prints, each line after the worker's label, and keep the last lines."""
        assert self._process.stderr is not None
        with io.TextIOWrapper(self._process.stderr, errors="replace") as lines:
            for line in lines:
                self._lines.append(line.rstrip("\n"))
                # Before, the lines of ssh are part of the error, if there is one.
                if self._is_greeted:
                    print_line(f"[{self.label}] {line.rstrip()}")


def _is_readable(sock: socket.socket, deadline: float) -> bool:
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    left = max(0.0, deadline - monotonic())
    return bool(poller.poll(None if left == math.inf else left * 1000))


def _overlap(received: bytes) -> int:
    """Return the length of the longest end of `received` with which a greeting begins."""
    return next(size for size in range(len(GREETING) - 1, -1, -1) if received.endswith(GREETING[:size]))
