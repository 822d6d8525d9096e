"""Connection to a daemon on another machine through the system's ssh, as Docker's `DOCKER_HOST=ssh://` does.

ssh runs `jitserver connect-stdio` on the remote machine, which joins its standard input and output to the socket of the
user's daemon. On this machine, ssh's input and output are one end of a socket pair, so all other code sees an ordinary
socket. ssh authenticates the user; agents, jump hosts and shared connections follow the user's ssh configuration.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import select
import shlex
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO, Any, Self

from jitclient.core.clock import monotonic
from jitclient.errors import DaemonUnavailable, HostUnreachable, SettingsError

_FORM = re.compile(
    r"ssh://(?:(?P<user>[^-@:/\s][^@:/\s]*)@)?(?P<host>\[[^-\[\]/\s][^\[\]/\s]*\]|[^-@:/\[\]\s][^@:/\[\]\s]*)"
    r"(?::(?P<port>\d{1,5}))?(?P<path>/[^\0-\x1f]*)?"
)
_CONNECT_SECONDS = 15
# Long enough for a user who types a password, and for a remote daemon that starts.
_PATIENCE_SECONDS = 180.0
_END_SECONDS = 2.0
_KEEPALIVE = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")
_OPTIONS = ("-o", f"ConnectTimeout={_CONNECT_SECONDS}", *_KEEPALIVE, "-o", "RemoteCommand=none")
# Another connection may already have the ports that the user's configuration forwards.
_WITHOUT_PORTS = ("-o", "ClearAllForwardings=yes")
# A shared connection would keep the forwarded ports.
_OWN_CONNECTION = ("-o", "ControlMaster=no", "-o", "ControlPath=none")
# Ctrl-C would kill ssh, and with it the connection.
_WITHOUT_CTRL_C = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")

_GREETING = re.compile(rb"\0jitserver (\d+)\n")
_BUFFER_BYTES = 1 << 20
_READ_BYTES = 1 << 16
# Limits the bytes that start-up files of the remote shell may print.
_MAX_NOISE_BYTES = 1 << 20
_FAILED, _NO_SUCH_COMMAND = 255, 127


@dataclasses.dataclass(frozen=True)
class SshAddress:
    """User's daemon on another machine, written `ssh://[user@]host[:port][/path/to/environment]`.

    Attributes:
        environment: directory of the Python environment there; `~/NAME` if it was written `/~/NAME`; if empty, the
            `jitserver` on PATH is used.
    """

    host: str
    user: str = ""
    port: int | None = None
    environment: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address.

        Raises:
            SettingsError: the address is invalid.
        """
        found = _FORM.fullmatch(text)
        port = int(found["port"]) if found and found["port"] else None
        if found is None or port == 0 or (port or 1) > 65535:
            raise SettingsError(
                f"address {text!r}: expected ssh://[user@]host[:port][/path/to/environment], without a password"
            )
        path = (found["path"] or "").rstrip("/")
        environment = path.removeprefix("/") if path.startswith("/~/") else path
        return cls(found["host"].strip("[]"), found["user"] or "", port, environment)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = f"/{self.environment}" if self.environment.startswith("~") else self.environment
        return f"ssh://{f'{self.user}@' if self.user else ''}{host}{'' if self.port is None else f':{self.port}'}{path}"

    def program(self, name: str) -> str:
        """Return the path of a program of the remote environment for its shell, which starts in the home directory."""
        return f"{self.environment.removeprefix('~/')}/bin/{name}" if self.environment else name

    def command(self, program: str, *arguments: str, terminal: bool = False, forward: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs a program of the remote environment.

        Args:
            program: name of the program.
            *arguments: its arguments.
            terminal: whether it gets a terminal.
            forward: options of ssh that forward ports.

        Raises:
            DaemonUnavailable: this machine has no ssh.
        """
        ssh = shutil.which("ssh")
        if ssh is None:
            raise DaemonUnavailable(f"{self} needs the program ssh, which is not on PATH: install OpenSSH's client")
        target_options = [
            *(("-l", self.user) if self.user else ()),
            *(("-p", str(self.port)) if self.port is not None else ()),
        ]
        batch_mode = () if _has_terminal() else ("-o", "BatchMode=yes")
        remote_command = shlex.join([self.program(program), *arguments])
        return [
            ssh,
            "-t" if terminal else "-T",
            *batch_mode,
            *_OPTIONS,
            *((*_OWN_CONNECTION, *forward) if forward else _WITHOUT_PORTS),
            *target_options,
            "--",
            self.host,
            remote_command,
        ]

    def background_command(self, program: str, *arguments: str, forward: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs a program beside this one: Ctrl-C does not end it.

        Raises:
            DaemonUnavailable: this machine has no ssh.
        """
        return [*_WITHOUT_CTRL_C, *self.command(program, *arguments, forward=forward)]

    def shown(self, program: str, *arguments: str) -> str:
        """Return the command that runs a program of the remote environment, for people to paste into a shell."""
        port = f"-p {self.port} " if self.port is not None else ""
        target = f"{self.user}@{self.host}" if self.user else self.host
        words = [self.program(program), *arguments]
        remote_command = shlex.join(words)
        quoted = remote_command if remote_command == " ".join(words) else shlex.quote(remote_command)
        return f"ssh {port}{target} {quoted}"

    def connect(self, start: bool = False) -> "tuple[SshSocket, int | None]":
        """Connect to the remote daemon; `start` one if none runs.

        Returns:
            A socket, and the process id of the daemon if this call started it.

        Raises:
            HostUnreachable: ssh did not reach the machine.
            DaemonUnavailable: there is no daemon or no jitserver, or ssh refused access; the message quotes ssh.
        """
        words = ("connect-stdio", *(() if start else ("--no-start",)))
        command = self.background_command("jitserver", *words)
        ours, theirs = socket.socketpair()
        for end, option in itertools.product((ours, theirs), (socket.SO_SNDBUF, socket.SO_RCVBUF)):
            end.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)  # macOS has 8 KiB
        said = tempfile.TemporaryFile()  # noqa: SIM115  (not a pipe: a shared connection may keep it open)
        try:
            with theirs:
                process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=said)
        except BaseException:
            ours.close()
            said.close()
            raise
        sock = SshSocket(ours, process, said)
        try:
            return sock, self._greeting(sock)
        except BaseException:
            sock.close()
            raise

    def _greeting(self, sock: "SshSocket") -> int | None:
        """Wait for the greeting of `connect-stdio`; return the daemon's process id if `connect-stdio` started it."""
        received = b""
        deadline = monotonic() + _PATIENCE_SECONDS
        while (found := _GREETING.search(received)) is None:
            if not sock.wait_readable(deadline) or len(received) > _MAX_NOISE_BYTES:
                silent = f"ssh printed nothing for {_PATIENCE_SECONDS:.0f} s"
                output = f"the remote shell printed {received[:200]!r}" if received else silent
                raise DaemonUnavailable(f"no jitserver answers at {self}: {output}")
            part = sock.recv(_READ_BYTES)
            if not part:
                raise self.refusal(*sock.exit_report())
            received += part
        return int(found[1]) or None

    def refusal(self, status: int | None, said: str, wanted: str = "daemon") -> DaemonUnavailable:
        """Return the error for a connection that closed before the greeting of the process that was wanted there.

        Args:
            status: exit status of ssh.
            said: its error output.
            wanted: noun for that process.
        """
        said = said.removeprefix("Error: ") or f"ssh exited with status {status} without a message"
        if status == _FAILED:
            final = next((do for text, do in _FINAL.items() if re.search(text, said, re.IGNORECASE)), None)
            advice = (final or _UNREACHABLE).format(self.shown("jitserver", "--version"))
            kind = HostUnreachable if final is None else DaemonUnavailable
            return kind(f"ssh does not reach {self}: {said}\n-> {advice}")
        if status == _NO_SUCH_COMMAND or "no such command" in said.lower():
            return DaemonUnavailable(f"there is no {self.program('jitserver')} at {self}: {said}\n-> {_INSTALL}")
        return DaemonUnavailable(f"no {wanted} answers at {self}: {said}")


_FINAL = {
    "host key|host identification": "run `{0}` in a terminal once, and compare the fingerprint that ssh shows",
    "permission denied|too many authentication": "install your public key there with `ssh-copy-id`; `{0}` must work",
    "could not resolve|name or service": "correct the host name; `{0}` must work",
}
_UNREACHABLE = "`{0}` must work; ssh's configuration (~/.ssh/config) applies"
_INSTALL = "install this machine's version of jitserver there, and name its environment: ssh://host/path/to/environment"


class SshSocket(socket.socket):
    """Socket to an ssh process; closing it terminates the process."""

    def __init__(self, sock: socket.socket, process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
        super().__init__(fileno=sock.detach())
        self._process = process
        self._stderr = said
        self._owner = os.getpid()

    def wait_readable(self, deadline: float) -> bool:
        """Wait for bytes or the end of the stream; return False if neither came before the deadline."""
        poller = select.poll()
        poller.register(self, select.POLLIN)
        return bool(poller.poll(max(0.0, deadline - monotonic()) * 1000))

    def recv_into(self, *arguments: Any) -> int:
        """Receive bytes as `socket.recv_into` does, but raise ssh's explanation if the connection closed.

        Raises:
            ConnectionResetError: the connection closed, and ssh printed a reason.
        """
        count = super().recv_into(*arguments)
        if not count and (said := self.exit_report()[1]):
            raise ConnectionResetError(f"ssh exited: {said}")
        return count

    def exit_report(self) -> tuple[int | None, str]:
        """Return ssh's exit status and error output, once ssh has closed its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        with contextlib.suppress(ValueError):  # another thread has closed it
            self._stderr.seek(0)
            return self._process.returncode, self._stderr.read().decode(errors="replace").strip()[-2000:]
        return self._process.returncode, ""

    def close(self) -> None:
        """Close the socket and terminate ssh; in a forked child, leave the process to the parent."""
        super().close()
        process = self._process
        if os.getpid() != self._owner:
            # The process belongs to the parent, so this process must not wait for it.
            process.returncode = 0
        elif process.returncode is None:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # ssh was stopped
                process.kill()
                process.wait()
        self._stderr.close()


def greeting(started: int | None) -> bytes:
    """Return the greeting of `connect-stdio`, written once it reached the daemon, after any output of the shell."""
    return b"\0jitserver %d\n" % (started or 0)


def _has_terminal() -> bool:
    """Return whether ssh can ask for a password."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True
