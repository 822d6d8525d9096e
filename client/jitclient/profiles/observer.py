"""Recordings of daemons for as long as JAX's profiler records this process."""

import contextlib
import functools
import gzip
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitclient.core.notices import print_notice
from jitclient.errors import JitserverError
from jitclient.jaxside import interop, profiler
from jitclient.session import process

if TYPE_CHECKING:
    from jitclient.profiles.recording import Recording
    from jitclient.session.link import Link
    from jitclient.wire.recording import Record


@functools.cache
def observe() -> None:
    """Make the profiler of this process's jax record the daemons of its sessions, too, from the import of jax on."""
    if not process.inside_daemon:
        interop.when_loaded(lambda: profiler.observe(_observer))


class Observer:
    """Observer of JAX's profiler. If anything of ours fails, JAX's own profile remains, with one notice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followed = 0  # id of XLA's session
        self._options: Record | None = None
        self._asked = set[bytes]()  # daemon processes
        self._recordings: list[Recording] = []
        self._stop_annotations: Callable[[], None] = lambda: None

    def begin(self, profiled: int, given: Any = None) -> None:
        """Record the daemons of all sessions that have or get a connection, unless this is within another recording."""
        if self._followed:
            return
        self._followed = profiled
        with _noticed():
            from jitclient.session import annotations, link
            from jitclient.wire.recording import Record

            self._close()
            names = ("host_tracer_level", "enable_hlo_proto", "advanced_configuration")
            self._options = Record(**{name: getattr(given, name) for name in names if hasattr(given, name)})
            self._stop_annotations = profiler.observe_annotations(annotations.begin, annotations.end)
            annotations.start()
            link.call_when_connected(self._record)
            for session in process.sessions():
                if session.connection is not None:
                    self._record(session)

    def end(self, profiled: int, is_written: bool) -> None:
        """Wait for the calls of this process, and end the recordings, which may be written later."""
        if self._followed != profiled:
            return
        with _noticed():
            from jitclient.session import annotations, link

            self._followed, self._options = 0, None
            link.call_when_connected(None)
            self._stop_annotations()
            annotations.stop()
            for session in process.sessions():
                with contextlib.suppress(JitserverError):
                    session.settle()
            with self._lock:
                ended, self._recordings = self._recordings, []
            for recording in ended:
                with _noticed():
                    recording.end()
                    self._recordings.append(recording)
        if not is_written:
            self._close()

    def written(self, directory: str) -> None:
        """Add the recordings to the profile that JAX has written to a log directory."""
        with _noticed():
            if self._recordings:
                own = max(Path(directory).glob("plugins/profile/*/*.xplane.pb"), key=os.path.getmtime)
                for number, recording in enumerate(self._recordings):
                    with _noticed():
                        recording.write(own, f"_{number + 1}" if number else "")
        self._close()

    def serves(self) -> None:
        """Say what a profiler server does not record."""
        print_notice("the profiler server records this process only; `jax.profiler.trace` records the daemon, too")

    def memory(self) -> bytes | None:
        """Return the profile of the daemon's memory, if this process has a session with one."""
        session = process.current
        if session is None or session.connection is None:
            return None
        with _noticed("the profile shows this process's memory, not the daemon's"):
            from jitclient.wire.messages import Verb

            return gzip.decompress(session.ask(Verb.MEMORY, None, bytes))
        return None  # type: ignore[unreachable]  # mypy does not see that the context suppresses exceptions

    def _record(self, session: "Link") -> None:
        """Record the daemon of a session, unless it is being recorded."""
        with _noticed(), self._lock:
            if self._options is None or session.daemon_process in self._asked:
                return
            from jitclient.profiles.recording import Recording

            self._asked.add(session.daemon_process)
            self._recordings.append(Recording(session.settings, self._options))

    def _close(self) -> None:
        self._asked.clear()
        while self._recordings:
            self._recordings.pop().connection.close()

    def after_fork(self) -> None:
        """Leave all recordings to the parent, in a forked child."""
        for recording in self._recordings:
            recording.connection.abandon()
        self._lock, self._recordings = threading.Lock(), []
        self._followed, self._options = 0, None


@contextlib.contextmanager
def _noticed(what: str = "the daemon is not in this profile") -> Iterator[None]:
    """Print what is missing if the code inside fails."""
    try:
        yield
    # XLA's errors and the daemon's have any type.
    except Exception as error:
        print_notice(f"{what}: {error}")


_observer = Observer()
os.register_at_fork(after_in_child=_observer.after_fork)
