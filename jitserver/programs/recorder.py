"""Recordings of the daemon's work with XLA's profiler, of which a process can use one at a time.

Each recording covers the time from its begin to its end. Whenever one begins or ends, the profiler is restarted: what
it recorded until then is a part of all recordings of that time. The Python code of the daemon is not recorded.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.profiler import TraceAnnotation

from jitclient.jaxside import profiler
from jitclient.wire.recording import Annotation, Record, Recorded
from jitserver.programs.devices import serial
from jitserver.programs.program import Program
from jitserver.store import journal

_MAX_OPEN = 1000


class Recording:
    """Recording of one client: its options, and the finished parts."""

    def __init__(self, options: Record) -> None:
        self.options = options
        self.parts: list[Recorded] = []


class Recorder:
    """The recordings that are in progress. Thread-safe.

    Attributes:
        is_on: whether there are any. A plain attribute, because each Run reads it.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._recordings: list[Recording] = []
        self._session: Any = None
        self._lock = threading.Lock()

    def count(self) -> int:
        """Return the number of recordings in progress."""
        return len(self._recordings)

    def begin(self, options: Record) -> Recording:
        """Begin a recording.

        Raises:
            RuntimeError: XLA's profiler does not start.
        """
        recording = Recording(options)
        with self._lock:
            self._restart([*self._recordings, recording])
            if recording.parts:
                self._recordings.remove(recording)
                self.is_on = bool(self._recordings)
                raise RuntimeError(recording.parts[-1].why)
        return recording

    def end(self, recording: Recording) -> list[Recorded]:
        """End a recording, and return its parts. Without effect if it has ended."""
        with self._lock:
            if recording in self._recordings:
                self._restart([other for other in self._recordings if other is not recording])
        return recording.parts

    def _restart(self, recordings: list[Recording]) -> None:
        """Give what was recorded so far to the recordings that are in progress, and record for others from now on."""
        session, before = self._session, self._recordings
        self._session, self._recordings, self.is_on = None, recordings, bool(recordings)
        found = None if session is None else _stopped(session)
        if recordings:
            try:
                self._session = profiler.session(*_combined([each.options for each in recordings]))
            except Exception as error:  # XLA's, of any type
                failed = Recorded("", why=f"XLA's profiler does not start ({error})")
                for recording in recordings:
                    recording.parts.append(failed)
        if found is not None:
            part = found if isinstance(found, Recorded) else _exported(session, found)
            for recording in before:
                recording.parts.append(part)

    def labelled(self, run: Callable[..., Any], program: Program) -> Callable[..., Any]:
        """Return a function that runs a program within an event of its client's and function's names."""
        work = journal.read(program.mark)
        client = getattr(serial.client(), "client", "")
        name = f"{work.label if work is not None else 'program'} of {client}"

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


def _combined(options: list[Record]) -> tuple[int, bool, dict[str, Any]]:
    """Return the options that record what each of these asks for, as those of `profiler.session`."""
    return (
        max(one.host_tracer_level for one in options),
        any(one.enable_hlo_proto for one in options),
        {name: value for one in options for name, value in one.advanced_configuration.items()},
    )


def _stopped(session: Any) -> bytes | Recorded:
    try:
        found: bytes = session.stop()
    except Exception as error:  # XLA's, of any type
        return Recorded("", why=f"XLA's profiler failed ({error})")
    return found


def _exported(session: Any, xspace: bytes) -> Recorded:
    """Return a part, in the forms that XLA writes to a directory."""
    with tempfile.TemporaryDirectory(prefix="jitserver-profile-") as directory, contextlib.suppress(OSError):
        session.export(xspace, directory)
        for path in Path(directory).rglob("*.xplane.pb"):
            traces = list(path.parent.glob("*.trace.json.gz"))
            host = path.name.removesuffix(".xplane.pb")
            return Recorded(host, path.read_bytes(), traces[0].read_bytes() if traces else b"")
    return Recorded("", xspace)
