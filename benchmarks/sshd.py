"""Another machine, as far as this one can be one: an sshd on loopback, with keys, folders and an environment."""

import contextlib
import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue

from benchmarks.processes import TELLS_JAX

SSH = shutil.which("ssh")
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")

SSHD_CONFIG = """
HostKey {folder}/host
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PidFile none
LogLevel ERROR
"""

SSH_CONFIG = """
Host *
    IdentityFile {folder}/user
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""


class Host:
    """The other machine. Each connection has an sshd of its own, behind a listener of this process.

    Attributes:
        address: of the daemon there.
        env: has a client find the `ssh` that knows this machine.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str], delay: float = 0.0) -> None:
        """Starts it.

        Args:
            folder: empty; with a path short enough for sockets.
            environment: what else the commands there find in theirs.
            delay: seconds that all bytes take, each way.
        """
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # which only the package's unit makes
        self.folder = folder
        self._delay = delay
        self._listener = _bound()
        self.port = self._listener.getsockname()[1]
        self._kept = _bound(self.port)  # no other process gets it once it is refused here
        self._listener.listen()
        self.socket = f"unix:{folder}/d.sock"
        self.user = getpass.getuser()
        self.address = f"ssh://{self.user}@127.0.0.1:{self.port}{folder}/environment"
        self.env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "JITSERVER_ADDRESS": self.address}
        self.opened = 0
        self._links: list[tuple[socket.socket, subprocess.Popen[bytes]]] = []
        self._write_files(environment)
        threading.Thread(target=self._listen, daemon=True).start()

    def _write_files(self, environment: Mapping[str, str]) -> None:
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(command, check=True)
        shutil.copy(self.folder / "user.pub", self.folder / "authorized_keys")
        self.know((self.folder / "host.pub").read_text())
        (self.folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=self.folder))
        (self.folder / "ssh_config").write_text(SSH_CONFIG.format(folder=self.folder))
        self.write_ssh()
        there = {
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            "JITSERVER_ADDRESS": self.socket,
            "JITSERVER_CACHE_DIR": f"{self.folder}/cache",
            **TELLS_JAX,
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            **environment,
        }
        exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in there.items())
        self.script("environment/bin/jitserver", f'{exports}\nexec {sys.executable} -P -m jitserver "$@"')

    def write_ssh(self) -> None:
        """The clients' `ssh`, which knows this machine."""
        self.script("bin/ssh", f'exec {SSH} -F {self.folder}/ssh_config "$@"')

    def script(self, name: str, text: str) -> None:
        """Writes a shell script there."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}")
        new.write_text(f"#!/bin/sh\n{text}\n")
        new.chmod(0o755)
        new.rename(path)  # a client may be about to run it

    def know(self, key: str) -> None:
        """The key by which clients know the machine."""
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {' '.join(key.split()[:2])}\n")

    def _listen(self) -> None:
        command = [str(SSHD), "-i", "-e", "-f", str(self.folder / "sshd_config")]
        with contextlib.suppress(OSError), open(self.folder / "sshd.log", "ab") as log:  # until it is closed
            while True:
                link, _ = self._listener.accept()
                self.opened += 1
                if self._delay:
                    link = _delayed(link, self._delay)
                self._links.append((link, subprocess.Popen(command, stdin=link, stdout=link, stderr=log)))

    def cut(self) -> None:
        """Breaks all connections."""
        links, self._links = self._links, []
        for link, process in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()
            process.wait(30)

    def stop_listening(self) -> None:
        """Refuses new connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # which a thread waits for
        self._listener.close()

    def close(self) -> None:
        """Ends it all."""
        self.stop_listening()
        self.cut()
        self._kept.close()


def _bound(port: int = 0) -> socket.socket:
    """A socket that does not listen yet."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


def _delayed(link: socket.socket, seconds: float) -> socket.socket:
    """The other end of a pair of sockets from which bytes reach the link late, and back."""
    near, far = socket.socketpair()
    for source, target in ((link, near), (near, link)):
        waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        threading.Thread(target=_note, args=(source, waiting, seconds), daemon=True).start()
        threading.Thread(target=_pass_on, args=(waiting, target), daemon=True).start()
    return far


def _note(source: socket.socket, waiting: "SimpleQueue[tuple[float, bytes]]", seconds: float) -> None:
    part = b"."
    while part:
        try:
            part = source.recv(1 << 16)
        except OSError:
            part = b""
        waiting.put((time.monotonic() + seconds, part))


def _pass_on(waiting: "SimpleQueue[tuple[float, bytes]]", target: socket.socket) -> None:
    with contextlib.suppress(OSError), target:
        while True:
            due, part = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not part:
                target.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(part)
