"""Recordings of daemons for as long as JAX's profiler records this process."""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jitclient.core.notices import print_notice
from jitclient.errors import JitserverError
from jitclient.jaxside import interop, profiler
from jitclient.session import process

if TYPE_CHECKING:
    from jitclient.profiles.recording import Recording
    from jitclient.session.link import Link
    from jitclient.wire.recording import Record

_NO_SESSION = "the profiler server records this process only; `jax.profiler.trace` records the daemon, too"


@functools.cache
def observe() -> None:
    """Make the profiler of this process's jax record the daemons of its sessions, too, from the import of jax on."""
    if not process.inside_daemon:
        interop.when_loaded(lambda: profiler.observe(_observer))


class Observer:
    """Observer of JAX's profiler. If anything of ours fails, JAX's own profile remains, with one notice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: Record | None = None
        # By daemon process; None if it cannot record.
        self._recordings: dict[bytes, Recording | None] = {}
        self._ended: list[Recording] = []
        self._stop_annotations: Callable[[], None] | None = None

    def begin(self, options: Any) -> bool:
        """Record the daemons of this process's sessions: those with a connection, and those that get one.

        Returns:
            Whether it does. A session of XLA's within another one is ignored.
        """
        if self._options is not None:
            return False
        with _noticed("the daemon is not in this profile"):
            from jitclient.session import annotations, link

            self._close()
            self._options = _options(options)
            self._stop_annotations = profiler.observe_annotations(annotations.begin, annotations.end)
            annotations.start()
            link.call_when_connected(self._record)
            for session in process.sessions():
                if session.connection is not None:
                    self._record(session)
        return True

    def end(self, is_written: bool) -> None:
        """Wait for the calls of this process, and end the recordings."""
        with _noticed("the daemon is not in this profile"):
            from jitclient.session import annotations, link

            self._options = None
            link.call_when_connected(None)
            if self._stop_annotations is not None:
                self._stop_annotations()
                self._stop_annotations = None
                annotations.stop()
            for session in process.sessions():
                with contextlib.suppress(JitserverError):
                    session.settle()
            with self._lock:
                found, self._recordings = [each for each in self._recordings.values() if each is not None], {}
            for recording in found:
                with _noticed("the daemon is not in this profile"):
                    recording.end()
                    self._ended.append(recording)
        if not is_written:
            self._close()

    def written(self, directory: str) -> None:
        """Add the recordings to the profile that JAX has written to a log directory."""
        for recording in self._ended:
            with _noticed("the daemon is not in this profile"):
                from jitclient.profiles import run_directory

                parts = recording.parts()
                run_directory.add(run_directory.latest(directory), parts, recording.clock_ahead)
                if lost := next((part.why for part in parts if part.why), ""):
                    print_notice(f"part of the daemon's work is not in this profile: {lost}")
        self._close()

    def serves(self) -> None:
        """Say what a profiler server does not record."""
        print_notice(_NO_SESSION)

    def memory(self) -> bytes | None:
        """Return the profile of the daemon's memory, if this process has a session with one."""
        session = process.current
        if session is None or session.connection is None:
            return None
        with _noticed("the profile shows this process's memory, not the daemon's"):
            import gzip

            from jitclient.wire.messages import Verb

            return gzip.decompress(session.ask(Verb.MEMORY, None, bytes))
        return None  # type: ignore[unreachable]  # mypy does not see that the context suppresses exceptions

    def _record(self, session: "Link") -> None:
        """Record the daemon of a session, unless it is being recorded."""
        with _noticed("the daemon is not in this profile"), self._lock:
            if self._options is None or session.daemon_process in self._recordings:
                return
            from jitclient.profiles.recording import Recording

            self._recordings[session.daemon_process] = None
            self._recordings[session.daemon_process] = Recording(session.settings, self._options)

    def _close(self) -> None:
        ended, self._ended = self._ended, []
        for recording in ended:
            recording.close()

    def after_fork(self) -> None:
        """Leave all recordings to the parent, in a forked child."""
        self._lock = threading.Lock()
        for recording in [*self._recordings.values(), *self._ended]:
            if recording is not None:
                recording.abandon()
        self._recordings, self._ended, self._options = {}, [], None


@contextlib.contextmanager
def _noticed(what: str) -> Iterator[None]:
    """Print what is missing if the code inside fails."""
    try:
        yield
    # XLA's errors and the daemon's have any type.
    except Exception as error:
        print_notice(f"{what}: {error}")


def _options(given: Any) -> "Record":
    """Return the options of a recording like those of a `jax.profiler.ProfileOptions`."""
    from jitclient.wire.recording import Record

    if given is None:
        return Record()
    advanced = dict(getattr(given, "advanced_configuration", {}))
    return Record(given.host_tracer_level, given.enable_hlo_proto, advanced)


_observer = Observer()
os.register_at_fork(after_in_child=_observer.after_fork)
