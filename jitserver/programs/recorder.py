"""Recordings of the daemon's work with XLA's profiler, one at a time. The Python code of the daemon is not recorded."""

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.profiler import TraceAnnotation

from jitclient.jaxside import profiler
from jitclient.wire.encoding import encoded
from jitclient.wire.recording import PART_BYTES, Annotation, Record, Recorded
from jitserver.programs.devices import serial
from jitserver.programs.program import CompiledProgram
from jitserver.store import journal

_MAX_OPEN = 1000


class Recorder:
    """The profiler of this process.

    Attributes:
        is_on: whether it records. A plain attribute, because each Run reads it.
        used: held while it records.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.used = threading.Lock()

    def begin(self, options: Record) -> "DaemonRecording":
        """Begin a recording.

        Raises:
            RuntimeError: there is one already.
            Exception: XLA's profiler does not start. The exception may be of any type.
        """
        if not self.used.acquire(blocking=False):
            raise RuntimeError("the daemon records for another client, and can do so for one at a time")
        try:
            session = profiler.session(options)
        except BaseException:
            self.used.release()
            raise
        self.is_on = True
        return DaemonRecording(self, session)


class DaemonRecording:
    """The recording of a connection, and its encoded bytes once it has ended."""

    def __init__(self, recorder: Recorder, session: Any) -> None:
        self._recorder, self._session, self._encoded = recorder, session, b""

    def fetch(self, start: int) -> bytes:
        """Return the bytes from `start` on, as many as fit into one answer. The first call ends the recording."""
        session = self._session
        if xspace := self.close():
            # XLA writes both forms, and the name of the host.
            with tempfile.TemporaryDirectory(prefix="jitserver-profile-") as directory:
                session.export(xspace, directory)
                [trace] = Path(directory).rglob("*.trace.json.gz")
                host = trace.name.removesuffix(".trace.json.gz")
                self._encoded = encoded(Recorded(host, xspace, trace.read_bytes()))
        return self._encoded[start : start + PART_BYTES]

    def close(self) -> bytes:
        """End the recording, and return its XSpace; nothing if it has ended."""
        session, self._session = self._session, None
        if session is None:
            return b""
        try:
            xspace: bytes = session.stop()
        finally:
            self._recorder.is_on = False
            self._recorder.used.release()
        return xspace


def labelled(run: Callable[..., Any], program: CompiledProgram) -> Callable[..., Any]:
    """Return a function that runs a program within an event of its client's and function's names."""
    work = journal.read(program.mark)
    name = f"{work.label if work is not None else 'program'} of {getattr(serial.client(), 'client', '')}"

    def labelled(*arguments: Any, **options: Any) -> Any:
        with TraceAnnotation(name):
            return run(*arguments, **options)

    return labelled


class Annotations:
    """The annotations that a client has begun and not ended, on the thread that makes its calls."""

    def __init__(self) -> None:
        self._open: dict[int, Any] = {}

    def follow(self, annotation: Annotation) -> None:
        """Begin or end an annotation. The end of one that did not begin has no effect."""
        if not annotation.name:
            event = self._open.pop(annotation.number, None)
            if event is not None:
                event.__exit__(None, None, None)
        elif len(self._open) < _MAX_OPEN:
            event = self._open[annotation.number] = TraceAnnotation(annotation.name, **annotation.metadata)
            event.__enter__()

    def end(self) -> None:
        """End all."""
        while self._open:
            self._open.popitem()[1].__exit__(None, None, None)


def memory_profile() -> bytes:
    """Return JAX's profile of the memory of the devices: gzipped, in the form of pprof."""
    return jax.profiler.device_memory_profile()
