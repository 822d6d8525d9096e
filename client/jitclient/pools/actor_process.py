"""Process of a worker in an actor of Ray, as a link sees it: its streams go through calls of the actor."""

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import IO, Any

from jitclient.core.threads import Thread

_READ_BYTES = 1 << 20
_MAX_ARGUMENT_BYTES = 1 << 14
_SHOWN_CHARACTERS = 500


class ActorProcess:
    """Worker in an actor, with the part of `subprocess.Popen` that a link uses.

    Args:
        ray: the module.
        start: starts the actor, a `WorkerActor`, which may take minutes; called in a thread.
        stream: standard input and output of the worker.

    Attributes:
        returncode: exit status of the worker; None while it runs, and if it is not known.
        stderr: what the worker prints, and at the end why the actor was lost.
        failure: why the actor was not started, or was lost.
    """

    def __init__(self, ray: Any, start: Callable[[], Any], stream: socket.socket) -> None:
        self._ray, self._start = ray, start
        self._stream = stream.dup()
        reading, writing = os.pipe()
        self.stderr: IO[bytes] | None = open(reading, "rb")  # noqa: SIM115
        self._said = open(writing, "wb", buffering=0)  # noqa: SIM115
        self.returncode: int | None = None
        self.failure: Exception | None = None
        self._actor: Any = None
        self._lock = threading.Lock()
        self._is_killed = False
        self._ended = threading.Event()
        Thread(self._run, "pool: output of an actor").start()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the worker has exited, or was lost.

        Raises:
            subprocess.TimeoutExpired: it runs longer.
        """
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired("a worker on Ray", timeout or 0.0)
        return self.returncode

    def kill(self) -> None:
        """End the actor, and with it the worker."""
        with self._lock:
            self._is_killed, actor = True, self._actor
        if actor is not None:
            with contextlib.suppress(Exception):  # Ray has lost it already, or the connection to the cluster
                self._ray.kill(actor)

    terminate = kill

    def _run(self) -> None:
        sends = False
        try:
            actor = self._start()
            with self._lock:
                self._actor, is_killed = actor, self._is_killed
            if not is_killed:
                Thread(self._send, "pool: input of an actor").start()
                sends = True
                self._receive()
        except Exception as error:
            self.failure = error
            with contextlib.suppress(OSError):
                self._said.write(f"{str(error)[:_SHOWN_CHARACTERS]}\n".encode())
        finally:
            self.kill()
            self._said.close()
            # The thread that sends finds that, and closes the stream.
            with contextlib.suppress(OSError):
                self._stream.shutdown(socket.SHUT_RDWR)
            if not sends:
                self._stream.close()
            self._ended.set()

    def _receive(self) -> None:
        while self.returncode is None:
            output, said, self.returncode = self._ray.get(self._actor.read.remote())
            with contextlib.suppress(OSError):  # the link is closed, and the worker about to exit
                self._said.write(said)
                self._stream.sendall(output)

    def _send(self) -> None:
        # The other thread finds and reports what is wrong.
        with contextlib.suppress(Exception), self._stream:
            while True:
                data = self._stream.recv(_READ_BYTES)
                # Ray's client warns of programs whose arguments are large, and are no objects.
                argument = self._ray.put(data) if len(data) > _MAX_ARGUMENT_BYTES else data
                self._ray.get(self._actor.write.remote(argument))
                if not data:
                    return
