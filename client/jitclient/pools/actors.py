"""Actors of a pool on a Ray cluster: ordinary classes, which Ray runs on a node, each in a process of its own.

This module does not import Ray. The classes are found by name on the nodes, so nothing of the program travels in them.
"""

import contextlib
import os
import select
import socket
import subprocess

from jitclient.core.directories import process_settings, runtime_directory
from jitclient.pools.versions import installed
from jitclient.session import launch
from jitclient.wire.address import Address

_BYTES = 1 << 20

# Ray kills the children of an actor that it ends. A worker that finds its input closed kills the processes of its
# tasks as well, so the shell is Ray's to kill, and the worker is left to do that.
_OUT_OF_RAYS_REACH = ("/bin/sh", "-c", '"$@"; exit $?', "sh")


class DaemonActor:
    """Daemon of a node, or of some of its accelerators: a detached actor, so that it outlives the program.

    The daemon is a child of the actor's process, and has the accelerators that Ray reserved for the actor. A kill of
    the actor by Ray ends the daemon, too. An actor that crashed is started again by Ray, and finds the daemon. Where
    the whole node stops, the daemon exits once it has been idle.

    Args:
        name: name of the daemon's socket.
    """

    def __init__(self, name: str) -> None:
        self._address = Address(runtime_directory() / f"{name}.sock")

    def start(self) -> tuple[dict[str, str], dict[str, str]]:
        """Start the daemon, unless it runs.

        Returns:
            The versions that must agree, and the environment variables with which a worker finds the daemon.
        """
        launch.start(self._address)[0].close()
        return dict(installed()), self._variables()

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command of `jitserver` for this daemon; return its exit status, its output, and its error output."""
        done = subprocess.run(
            launch.program(*words),
            env={**os.environ, **self._variables()},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def _variables(self) -> dict[str, str]:
        # A client may start the daemon again, which should then have the same accelerators.
        return {"JITSERVER_ADDRESS": str(self._address), **process_settings()}


class WorkerActor:
    """Worker on a node, and the way to its standard streams. It ends with the program that started it.

    Args:
        variables: environment variables with which the worker finds its daemon.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        command = [*_OUT_OF_RAYS_REACH, *launch.program("pool-worker")]
        self._stream, theirs = socket.socketpair()
        for end in (self._stream, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BYTES)
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                env={**os.environ, **variables},
            )
        assert self._process.stderr is not None
        self._poller = select.poll()
        for output in (self._stream.fileno(), self._process.stderr.fileno()):
            self._poller.register(output, select.POLLIN)

    def pid(self) -> int:
        """Return the process id of the worker's shell: the worker has started."""
        return self._process.pid

    def write(self, data: bytes) -> None:
        """Write to the worker's standard input; nothing: close it. A worker that has exited reads nothing."""
        with contextlib.suppress(OSError):
            self._stream.sendall(data)
            if not data:
                self._stream.shutdown(socket.SHUT_WR)

    def read(self) -> tuple[bytes, bytes, int | None]:
        """Wait for output; return standard output, standard error, and the exit status once the worker has exited."""
        assert self._process.stderr is not None
        output, errors = self._stream.fileno(), self._process.stderr.fileno()
        while True:
            ready = {end for end, _ in self._poller.poll()}
            out, said = (_read(end) if end in ready else b"" for end in (output, errors))
            # A process that a task started may hold standard error, so its end says nothing.
            if errors in ready and not said:
                self._poller.unregister(errors)
            has_exited = output in ready and not out
            if out or said or has_exited:
                return out, said, _status(self._process.wait()) if has_exited else None


def _read(end: int) -> bytes:
    """Return bytes from a stream; none if it has ended, also if the other side has not read all of its input."""
    try:
        return os.read(end, _BYTES)
    except ConnectionResetError:
        return b""


def _status(status: int) -> int:
    """Return the exit status of a process from that of its shell: a signal is negative, as in `subprocess`."""
    return 128 - status if status > 128 else status
