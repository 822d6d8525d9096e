"""Another machine, as far as this one can be one: an sshd on loopback, with keys, folders and an environment."""

import contextlib
import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.socket = f"unix:{folder}/d.sock"
        self.user = getpass.getuser()
        self.address = f"ssh://{self.user}@127.0.0.1:{self.port}{folder}/environment"
        self.env = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "JITSERVER_ADDRESS": self.address}
        self.opened = 0
        self._links: list[tuple[socket.socket, subprocess.Popen[bytes]]] = []
        self._write_files(environment)
        threading.Thread(target=self._listen, daemon=True).start()

    def _write_files(self, environment: dict[str, str]) -> None:
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
            "JAX_PLATFORMS": "cpu",
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
                self._links.append((link, subprocess.Popen(command, stdin=link, stdout=link, stderr=log)))
                self.opened += 1

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


NewHost = Callable[..., contextlib.AbstractContextManager[Host]]


@pytest.fixture(scope="session")
def new_host() -> NewHost:
    """Starts another machine, on which no daemon runs. Without sshd here, its tests are skipped."""
    if SSHD is None:
        pytest.skip("NO TEST OF ssh:// RUNS: there is no sshd here (apt-get install openssh-server)")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # which only the package's unit makes

    @contextlib.contextmanager
    def start(**environment: str) -> Iterator[Host]:
        with tempfile.TemporaryDirectory(prefix="js-") as folder:
            host = Host(Path(folder), **environment)
            try:
                yield host
            except BaseException:
                print((Path(folder) / "sshd.log").read_text())
                raise
            finally:
                host.close()

    return start


@pytest.fixture(scope="module")
def host(new_host: NewHost, new_daemon: Callable[..., Any]) -> Iterator[Host]:
    """Another machine with a daemon, for the tests of a module."""
    with new_host() as made, new_daemon(made.socket):
        yield made


@pytest.fixture
def run_there(host: Host, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program as a client of that machine."""

    def run(source: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(source))
        return subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, **host.env, **env},
            capture_output=True,
            text=True,
            timeout=170,
        )

    return run
