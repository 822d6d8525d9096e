"""jitserver as for a client on another host: its frames over TCP, in through the seam behind which a door will be.

There is no public one: `serve` runs a daemon of its own whose listener is handed what connects to a port of loopback,
and `connect` has the client connect there.
"""

import contextlib
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from benchmarks.processes import FINDS_BENCHMARKS, environment, running
from benchmarks.result import OURS
from benchmarks.rivals import Caller

NAME = OURS
NEEDS = ("jax",)
_DOOR = "BENCHMARKS_DOOR"
"""The port, and what to send there at once: what a daemon is sent, it runs."""


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[dict[str, str]]:
    """A daemon of its own, with nothing in its cache."""
    door = folder / "door"
    with running(["-m", __name__, str(folder)], environment(folder, **FINDS_BENCHMARKS), folder, door.exists):
        yield {_DOOR: door.read_text()}


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A client, which takes no Unix socket."""
    import jitclient
    from jitclient.wire.address import Address

    port, token = os.environ[_DOOR].split()

    def over_tcp(_: Address, seconds: float = 30) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", int(port)))
        sock.sendall(token.encode())
        return sock

    with mock.patch.object(Address, "connect", over_tcp):
        yield Caller(jitclient.jit, jitclient.device_put, jitclient.block_until_ready)


def main(folder: Path) -> None:
    """Runs the daemon, and tells in a file how to get in."""
    from jitclient.wire.address import Address
    from jitserver.daemon.daemon import Daemon
    from jitserver.daemon.serve_options import Options
    from jitserver.system.malloc import keep_freed

    class Open(Daemon):
        """A daemon that accepts every connection to the port."""

        def start(self) -> None:
            super().start()
            listener, token = socket.create_server(("127.0.0.1", 0)), secrets.token_hex()
            threading.Thread(target=self._let_in, args=(listener, token), daemon=True).start()
            (folder / "door.new").write_text(f"{listener.getsockname()[1]} {token}")
            (folder / "door.new").rename(folder / "door")

        def _let_in(self, listener: socket.socket, token: str) -> None:
            while True:
                sock, _ = listener.accept()
                if sock.recv(len(token), socket.MSG_WAITALL).decode() == token:
                    self._listener.admit(sock, pid=0)
                else:
                    sock.close()

    keep_freed()
    Open(Options(Address(folder / "d.sock"))).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
