"""The daemon's lifecycle in four steps: start, serve, drain, stop."""

import contextlib
import faulthandler
import functools
import gc
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from jitclient.core import directories
from jitclient.core.directories import runtime_directory
from jitclient.core.polling import Polling
from jitclient.core.threads import Thread
from jitclient.errors import AddressTaken, DaemonUnavailable, SettingsError
from jitclient.session import launch
from jitclient.session import process as client_process
from jitclient.wire.address import Address, note_running
from jitserver.daemon.address_lock import HeldAddress
from jitserver.daemon.arrays.budget import limits
from jitserver.daemon.checkpoint.checkpoint import Checkpoint
from jitserver.daemon.checkpoint.manifests import directory_of
from jitserver.daemon.installation import Installation
from jitserver.daemon.listener import Listener
from jitserver.daemon.log_file import LogFile
from jitserver.daemon.serve_options import Options
from jitserver.daemon.service import JitService
from jitserver.programs.context import class_count
from jitserver.programs.counters import Counters
from jitserver.programs.devices import memories
from jitserver.programs.devices.heartbeat import DeviceHeartbeat
from jitserver.programs.engine import Engine
from jitserver.programs.executables import keep_compilations
from jitserver.programs.prewarm import dry_run, import_packages, prewarm
from jitserver.store.disk import Store
from jitserver.store.environments import SharedLimit
from jitserver.store.journal import Journal, is_in_use
from jitserver.store.memory import MemoryTier
from jitserver.store.share.lab import joined
from jitserver.store.tiers import Tiers, disk_share
from jitserver.store.write_behind import Writer
from jitserver.system import sd_notify
from jitserver.system.malloc import IdleTrim
from jitserver.system.memory_limits import memory_kills
from jitserver.system.shared_memory import BlockPool

log = logging.getLogger(__name__)

RESTART_REASON = "_JITSERVER_RESTART_REASON"
"""Environment variable with the reason why a daemon starts again in its process."""

_TICK_SECONDS = 1.0
_TIDY_SECONDS = 3600.0
_PAUSE_SECONDS = 0.05  # interval of prewarming's checks while clients wait for answers
# Minimum time for saving arrays, however long running calls took.
_SAVING_SECONDS = 10.0
# Time for running calls to finish after a failure of the daemon.
_FAILED_DRAIN_SECONDS = 1.0
# Time beyond the deadlines of a shutdown after which the process is killed.
_MARGIN_SECONDS = 5.0
# Time for a shutdown that waits for nothing, after which the process is killed: alarms have whole seconds.
_NOW_SECONDS = 1


class Daemon:
    """A daemon process. `run` executes its whole lifecycle."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._shutdown_requested = threading.Event()
        self._restart_reason = ""
        self._failed = False
        self._saves_sessions = False
        self._idle_trim = IdleTrim()
        self._installation = Installation()
        self._log_file = LogFile.of_stderr()
        self._stops_now = False
        self._reopens_log = False
        self._logs_state = False
        self._held_address: HeldAddress
        self._note: IO[str] | None = None
        self._service: JitService
        self._listener: Listener
        self._checkpoint: Checkpoint | None = None

    def run(self) -> str:
        """Start, serve until a shutdown is requested, drain, and stop.

        Returns:
            Why to start again, or an empty text. Empty if systemd started this daemon, since systemd also restarts it.

        Raises:
            AddressTaken: another daemon serves at the address.
            Exception: the daemon failed; it has saved as much as it could.
        """
        self.start()
        failure: Exception | None = None
        try:
            self.serve()
        except Exception as error:
            log.error("the daemon failed: %s", error)
            failure, self._failed = error, True
            self._request_shutdown(save_sessions=True)
        drain = self.options.drain if failure is None else min(self.options.drain, _FAILED_DRAIN_SECONDS)
        with _deadline(_NOW_SECONDS if self._stops_now else drain + _SAVING_SECONDS + _MARGIN_SECONDS):
            self.drain(0 if self._stops_now else drain)
            self.stop()
        if failure is not None:
            raise failure
        return self._restart_reason if self._restarts() else ""

    # ---- the four steps

    def start(self) -> None:
        """Acquire the address, start the engine, then listen, so that a client that can connect is served at once.

        Raises:
            AddressTaken: another daemon serves at the address.
            SettingsError: JAX finds no devices, or no socket can be opened at the address.
        """
        self._handle_signals()
        if self._log_file is not None:
            self._log_file.limit()
        client_process.become_daemon()
        self._held_address = HeldAddress(self.options.address)
        counters = Counters()
        try:
            engine = Engine(counters, self._cache(counters), _created_journal())
        except BaseException:
            self._held_address.release()
            raise
        pool = BlockPool(self.options.shared_bytes)
        array_limits = limits(memories.of_process(), self.options.array_bytes)
        stop = functools.partial(self._request_shutdown, save_sessions=False)
        self._service = JitService(engine, counters, pool, stop, self._restart, array_limits)
        self._service.drain_seconds = self.options.drain
        gc.collect()
        # Make the collector skip permanent objects: p99 latency under load 2.4 -> 0.15 ms.
        gc.freeze()
        self._service.address = str(self._held_address.address)
        self._service.restarted = os.environ.pop(RESTART_REASON, "")
        sessions = self._service.sessions
        self._checkpoint = _checkpoint(self._service.address)
        if self._checkpoint is not None:
            engine.cache.store.other_bytes = self._checkpoint.nbytes
            self._checkpoint.restore(self._service.named_arrays.trees, sessions, engine.programs.entry_of)
        # Before it listens, so that each client that connects finds the note.
        self._note = _noted(self._held_address.address)
        listener, max_connections = self._held_address.listen(), self.options.most_connections
        self._listener = Listener(self._service, sessions, listener, self._service.pool, max_connections)
        self._service.connections = self._listener.heartbeat.connections
        self._listener.start()
        launch.release_start_lock()
        log.info("serving at %s (pid %d)", self._service.address, os.getpid())
        if self.options.prewarm or self.options.packages:
            try:
                Thread(functools.partial(self._prewarm, engine), "prewarm").start()
            except RuntimeError as error:
                log.warning("prewarming: cannot start a thread (%s)", error)
        self._tidied = time.monotonic()
        engine.cache.tidy()
        sd_notify.notify("READY=1")

    def serve(self) -> None:
        """Serve until a signal, a client's `stop`, or the idle timeout.

        Raises:
            RuntimeError: a thread that the daemon depends on has exited.
            AddressTaken: another daemon has taken the address.
        """
        every = sd_notify.watchdog_seconds()
        watchdog = self._watchdog(every) if every is not None else None
        while not self._shutdown_requested.wait(min(_TICK_SECONDS, every or _TICK_SECONDS)):
            if watchdog is not None:
                watchdog.tick()
            self._keep_log()
            self._check_threads()
            self._check_address()
            self._forget_finished()
            self._trim_memory()
            self._service.named_arrays.expire()
            self._keep_cache_tidy()
            if class_count() > self.options.most_classes and not self._service.sessions.all():
                self._restart(f"the daemon restarts, because JAX holds {class_count()} user classes")
            elif self._installation.is_gone(time.monotonic()):
                log.warning("the package %s was removed. The daemon exits.", self._installation.path.parent)
                self._request_shutdown(save_sessions=True)
            elif self._is_idle():
                log.info("idle for %.0f s", self.options.idle_exit)
                return

    def drain(self, seconds: float) -> None:
        """Accept nothing new, let running calls finish, and save the sessions for the next daemon.

        A step that fails does not prevent the others.

        Args:
            seconds: the time for running calls to finish.
        """
        deadline = time.monotonic() + seconds
        sd_notify.notify("STOPPING=1")
        with _logged("the journal"):
            # Close the journal first: a supervisor may kill this process during the drain.
            self._service.engine.journal.end()
        self._service.draining = True
        # If sessions are saved, clients repeat refused calls at the next daemon.
        self._service.refuses_calls = not self._saves_sessions
        if self._restarts():
            with _logged("the start lock"):
                # Clients then wait for this daemon to start again, and start no other daemon.
                launch.hold_start_lock(self.options.address)
        with _logged("the listener"):
            # Freeze first, so that clients that can still connect begin no Run.
            self._freeze()
            self._stop_accepting()
        with _logged("running calls"):
            left = self._wait_for_calls(deadline)
            if left:
                within = "before a signal" if self._stops_now else f"within {seconds:.0f} s"
                log.warning("shutdown: %d calls did not finish %s", left, within)
        saving_deadline = max(deadline, time.monotonic() + (_NOW_SECONDS / 2 if self._stops_now else _SAVING_SECONDS))
        if self._saves_sessions:
            # Runs that are still active cannot change the saved state, and their clients should not wait for them.
            self._listener.close_connections()
        with _logged("the arrays"):
            if self._checkpoint is not None:
                saved = self._service.sessions.all() if self._saves_sessions else []
                self._checkpoint.save(self._service.named_arrays.trees, saved, saving_deadline)
        with _logged("the cache"):
            cache = self._service.engine.cache
            # After a failure, skip closing the store, because SQLite may take ten seconds to fail.
            close = cache.writer.finish if self._failed else cache.close
            if not close(max(0.1 if self._stops_now else 1.0, deadline - time.monotonic())):
                log.warning("shutdown: not all programs were written to the disk in time")

    def stop(self) -> None:
        """Close all connections and release the address, unless this process executes its program again."""
        with _logged("connections"):
            self._listener.close()
        with _logged("sessions"):
            if not self._saves_sessions:
                self._service.sessions.end_all()
        with _logged("the address"):
            if self._restarts():
                self._held_address.keep()
            else:
                self._held_address.release()
        log.info("stopped")

    # ---- details

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._request_shutdown(save_sessions=True))
        signal.signal(signal.SIGQUIT, self._on_quit)
        signal.signal(signal.SIGHUP, self._on_hangup)
        signal.signal(signal.SIGUSR1, self._on_user_signal)
        # Writes the stacks at once, even if the main thread is stuck, and then calls the handler above.
        faulthandler.register(signal.SIGUSR1, 2, chain=True)

    def _on_quit(self, *_: object) -> None:
        """Exit within a second, without waiting for running calls; also while a shutdown waits for them."""
        self._stops_now = True
        self._request_shutdown(save_sessions=False)
        _kill_in(_NOW_SECONDS)

    def _on_hangup(self, *_: object) -> None:
        if self._log_file is None:  # the terminal was closed
            self._request_shutdown(save_sessions=True)
        self._reopens_log = True

    def _on_user_signal(self, *_: object) -> None:
        self._logs_state = True

    def _keep_log(self) -> None:
        """Reopen, limit and write the log as signals requested: signal handlers only note that."""
        if self._log_file is not None:
            if self._reopens_log:
                self._reopens_log = False
                self._log_file.reopen()
                log.info("reopened the log")
            self._log_file.limit()
        if self._logs_state:
            self._logs_state = False
            log.info("state: %s", msgspec.json.encode(self._service.snapshot()).decode())

    def _cache(self, counters: Counters) -> Tiers:
        writer = Writer(lambda: counters.calls + counters.hits + counters.misses)
        memory = MemoryTier(self.options.program_bytes, self.options.program_maps)
        lab = joined()
        try:
            directory = directories.environment_directory()
            max_bytes = disk_share(directory) if self.options.disk_bytes is None else self.options.disk_bytes
            store = Store(directory, max_bytes, memory.allow_eviction)
        except (OSError, SettingsError) as error:
            log.warning("disk cache: disabled (%s)", error)
            store = Store(Path(os.devnull), 0)
        if store.max_bytes:
            store.shared = SharedLimit(directory, max_bytes, functools.partial(is_in_use, runtime_directory()))
            keep_compilations(store.compilations_directory, store.max_compilations_bytes, lab)
        return Tiers(memory, store, writer, lab)

    def _prewarm(self, engine: Engine) -> None:
        sessions, working = self._service.sessions, self._listener.heartbeat.working

        def may_continue() -> bool:
            while working() and not self._shutdown_requested.wait(_PAUSE_SECONDS):
                pass
            return not self._shutdown_requested.is_set()

        def may_begin() -> bool:
            connected = any(session.presence.is_connected() for session in sessions.all())
            return not (connected or self._shutdown_requested.is_set())

        loaded = prewarm(engine, may_continue) if self.options.prewarm else []
        if not loaded:
            import_packages(self.options.packages, may_continue)
        dry_run(engine, loaded, may_begin, sessions.budget.default.recount)

    def _forget_finished(self) -> None:
        in_flight = self._service.engine.in_flight
        if in_flight is not None:
            in_flight.forget_finished()

    def _trim_memory(self) -> None:
        now, counters = time.monotonic(), self._service.counters
        self._service.pool.trim(now)
        self._idle_trim.tick((counters.calls, counters.dry_runs, self._service.sessions.last_change), now)

    def _request_shutdown(self, save_sessions: bool) -> None:
        if not self._shutdown_requested.is_set():  # the first request decides
            self._saves_sessions = save_sessions
            self._shutdown_requested.set()

    def _keep_cache_tidy(self) -> None:
        cache, now = self._service.engine.cache, time.monotonic()
        cache.flush()
        cache.memory.trim()
        if now - self._tidied > _TIDY_SECONDS:
            self._tidied = now
            cache.tidy()

    def _restart(self, reason: str) -> None:
        if not self._shutdown_requested.is_set():
            log.warning("%s", reason)
            self._restart_reason = f"{time.strftime('%Y-%m-%d %H:%M:%S')}: {reason}"
            self._request_shutdown(save_sessions=True)

    def _restarts(self) -> bool:
        """Return whether this process executes its program again; systemd restarts a daemon that it started."""
        return bool(self._restart_reason) and self._held_address.is_ours and not self._failed

    def _freeze(self) -> None:
        if self._saves_sessions:
            self._service.sessions.freeze()

    def _wait_for_calls(self, deadline: float) -> int:
        """Wait until no call is running, or the deadline; return the number of running calls."""
        polling = Polling(deadline - time.monotonic())
        while True:
            self._freeze()  # each time, because a client may have just connected
            left = self._listener.heartbeat.working()
            if not left or self._stops_now or not polling.pause():
                return left

    def _stop_accepting(self) -> None:
        try:
            self._held_address.remove_socket()
        finally:
            self._listener.stop_accepting()

    def _check_threads(self) -> None:
        writer = self._service.engine.cache.writer
        for thread in (self._listener.thread, self._listener.heartbeat.thread, writer.thread):
            if not thread.is_alive():
                raise RuntimeError(f"the daemon's thread {thread.name!r} has exited")

    def _check_address(self) -> None:
        try:
            renewed = self._held_address.renew()
        except AddressTaken:
            self._checkpoint = None  # its directory now belongs to the other daemon
            raise
        if renewed is not None:
            self._listener.move_to(renewed)
        elif self._held_address.is_replaced():
            log.warning("another process listens at %s. This daemon hands over to it.", self._service.address)
            self._request_shutdown(save_sessions=True)

    def _watchdog(self, every: float) -> sd_notify.Watchdog:
        sessions = self._service.sessions
        return sd_notify.Watchdog(every / 2, DeviceHeartbeat().beat, lambda: bool(sessions.all()))

    def _is_idle(self) -> bool:
        if self.options.idle_exit is None or self._is_used():
            return False
        return time.monotonic() - self._service.sessions.last_change > self.options.idle_exit

    def _is_used(self) -> bool:
        return bool(self._service.sessions.all() or self._service.named_arrays.trees)


def _noted(address: Address) -> IO[str] | None:
    try:
        return note_running(address)
    except (OSError, DaemonUnavailable, SettingsError) as error:
        log.warning("commands of other shells do not find this daemon: %s", error)
        return None


def _checkpoint(address: str) -> Checkpoint | None:
    try:
        return Checkpoint(directory_of(address))
    except (OSError, SettingsError) as error:
        log.warning("checkpoint: cannot be opened (%s). Arrays are neither restored nor saved.", error)
        return None


def _created_journal() -> Journal:
    try:
        journal = Journal.create(runtime_directory(), directories.environment_directory(), memory_kills())
    except (OSError, SettingsError) as error:
        log.warning("crash journal: cannot be created (%s). Crashes of this daemon cause no strikes.", error)
        return Journal()
    journal.report_crashes()
    return journal


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log an exception of a shutdown step, and suppress it."""
    try:
        yield
    except Exception:
        log.exception("shutdown: %s", what)


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Kill the process if the context takes longer than `seconds`.

    The log then contains the stack of each thread. An alarm signal is used, because it needs no thread.
    """
    _kill_in(seconds)
    yield
    signal.alarm(0)


def _kill_in(seconds: float) -> None:
    faulthandler.register(signal.SIGALRM, 2, chain=True)
    signal.alarm(math.ceil(seconds))
