"""The daemon's life in four steps: start, serve, drain, stop."""

import contextlib
import fcntl
import functools
import gc
import logging
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import IO

from jitclient.errors import AddressTaken, DaemonSilent, DaemonUnavailable, SettingsError
from jitclient.sessions import launch
from jitclient.sessions import process as client_process
from jitclient.wire.address import Address, runtime_folder
from jitclient.wire.messages import Run
from jitserver.arrays.budget import array_share
from jitserver.cache import folder
from jitserver.cache.memory import Memory
from jitserver.cache.store import Store
from jitserver.cache.tiers import Tiers, disk_share
from jitserver.cache.write_behind import Writer
from jitserver.checkpoint.checkpoint import Checkpoint
from jitserver.counters import Counters
from jitserver.crashes.journal import Journal
from jitserver.engine import program_texts
from jitserver.engine.dry_runs import dry_run
from jitserver.engine.engine import Engine
from jitserver.engine.heartbeat import Heartbeat
from jitserver.engine.prewarm import prewarm
from jitserver.platform import sd_notify
from jitserver.platform.malloc import Keeper
from jitserver.platform.shared_memory import Pool
from jitserver.server import plain_runs, runs
from jitserver.server.connection import Answered, Lane
from jitserver.server.listener import Acceptor
from jitserver.server.options import Options
from jitserver.server.service import JitService
from jitserver.sessions.session import Session

log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_TIDY_SECONDS = 3600.0
_LOCK_SECONDS = 60.0  # how long a new daemon waits for one that is draining
_SAVING_SECONDS = 10.0  # to write arrays to the disk, at least, however long running calls took


class Daemon:
    """One daemon process. `run` goes through its whole life."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._told_to_end = threading.Event()
        self._begin_anew = False
        self._leaves_sessions = False  # to the daemon that follows
        self._memory = Keeper()
        self._lock: IO[str] | None = None
        self._file: os.stat_result | None = None  # of the socket that is ours to remove
        self._service: JitService
        self._acceptor: Acceptor
        self._checkpoint: Checkpoint | None = None

    def run(self) -> bool:
        """Starts, serves until told to end, drains and stops; returns whether it is to begin anew.

        Raises:
            AddressTaken: another daemon serves there.
        """
        self.start()
        try:
            self.serve()
            self.drain()
        finally:
            self.stop()
        return self._begin_anew and self._lock is not None  # where systemd listens, systemd starts it again

    # ---- the four steps

    def start(self) -> None:
        """Takes the address, brings the engine up, then opens the door: whoever can connect is served at once."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._end(leaves_sessions=True))
        client_process.become_daemon()
        inherited = sd_notify.inherited_socket()
        if inherited is None:
            self._lock = _take_lock(self.options.address)
        counters = Counters()
        engine = Engine(counters, self._cache(counters), _begun_journal())
        pool = Pool(self.options.shared_bytes)
        array_bytes = self.options.array_bytes or array_share(engine.device_infos())
        stop = functools.partial(self._end, leaves_sessions=False)
        self._service = JitService(engine, counters, pool, stop, self._restart, array_bytes)
        gc.collect()
        gc.freeze()  # what lives for ever is not looked at again: p99 under load 2.4 -> 0.15 ms (FINDINGS)
        self._service.address = str(_address_of(inherited, self.options.address))
        sessions = self._service.sessions
        self._checkpoint = _checkpoint(self._service.address)
        if self._checkpoint is not None:
            self._checkpoint.take_back(self._service.naming.named, sessions, engine.programs.entry_of)
        listener = inherited or self.options.address.listen()
        self._file = None if inherited else self.options.address.path.stat()
        answer = functools.partial(_answer, self._service)
        plain = functools.partial(plain_runs.answer, self._service)
        self._acceptor = Acceptor(self._service, answer, plain, sessions, listener, self._service.pool)
        threading.Thread(target=self._acceptor.start, name="acceptor", daemon=True).start()
        launch.let_start()
        log.info("serving at %s (pid %d)", self._service.address, os.getpid())
        if self.options.prewarm:
            threading.Thread(target=self._prewarm, args=(engine,), name="prewarm", daemon=True).start()
        self._tidied = time.monotonic()
        engine.cache.tidy()
        sd_notify.notify("READY=1")

    def serve(self) -> None:
        """Waits until a signal, a client's `stop`, or long idleness says that it is over."""
        every = sd_notify.watchdog_seconds()
        watchdog = self._watchdog(every) if every is not None else None
        while not self._told_to_end.wait(min(_TICK_SECONDS, every or _TICK_SECONDS)):
            if watchdog is not None:
                watchdog.tick()
            self._give_memory_back()
            self._service.naming.expire()
            self._keep_cache_tidy()
            if self._service.engine.classes() > self.options.most_classes and not self._service.sessions.all():
                log.info("beginning anew: JAX holds %d user classes", self._service.engine.classes())
                self._restart()
            elif self._is_idle():
                log.info("idle for %.0f s", self.options.idle_exit)
                return

    def drain(self) -> None:
        """Takes nothing new, gives running calls time to finish, and leaves the sessions to the next daemon."""
        sd_notify.notify("STOPPING=1")
        self._service.engine.journal.end()  # now: who supervises us may lose patience
        self._service.draining = True
        self._service.refuses_calls = not self._leaves_sessions  # else they wait for the next daemon
        if self._begin_anew and self._lock is not None:
            launch.keep_start(self.options.address)  # clients wait for us, and start no other
        self._freeze()  # nothing begins once the door is closed
        self._close_door()
        deadline = time.monotonic() + self.options.drain
        left = self._wait_for_calls(deadline)
        if left:
            log.warning("%d calls did not finish within %.0f s", left, self.options.drain)
        most = max(deadline, time.monotonic() + _SAVING_SECONDS)
        if self._leaves_sessions:
            self._acceptor.hang_up()  # what is still under way changes nothing any more, and nobody hears of it
        if self._checkpoint is not None:
            left_behind = self._service.sessions.all() if self._leaves_sessions else []
            self._checkpoint.save(self._service.naming.named, left_behind, most)
        if not self._service.engine.cache.close(max(1.0, deadline - time.monotonic())):
            log.warning("the disk did not take all programs in time")

    def stop(self) -> None:
        """Ends all connections and lets go of the address."""
        self._close_door()
        self._acceptor.close()
        if not self._leaves_sessions:
            self._service.sessions.end_all()
        if self._lock is not None:
            self._lock.close()
        log.info("stopped")

    # ---- details

    def _cache(self, counters: Counters) -> Tiers:
        writer = Writer(lambda: counters.calls + counters.hits + counters.misses)
        memory = Memory(self.options.program_bytes, self.options.program_maps)
        try:
            part = folder.part()
            most = disk_share(part) if self.options.disk_bytes is None else self.options.disk_bytes
            store = Store(part, most, memory.take_over)
        except (OSError, SettingsError) as error:
            log.warning("there can be no cache on the disk: %s", error)
            store = Store(Path(), 0)
        if store.most_bytes:
            program_texts.keep_in(store.texts, lambda: counters.add(text_hits=1))
        return Tiers(memory, store, writer)

    def _prewarm(self, engine: Engine) -> None:
        sessions = self._service.sessions

        def may_begin() -> bool:
            connected = any(session.presence.is_connected() for session in sessions.all())
            return not (connected or self._told_to_end.is_set())

        dry_run(engine, prewarm(engine, self._told_to_end), may_begin, sessions.budget.recount)

    def _give_memory_back(self) -> None:
        now, counters = time.monotonic(), self._service.counters
        self._service.pool.trim(now)
        self._memory.tick(counters.calls + counters.dry_runs, now)

    def _end(self, leaves_sessions: bool) -> None:
        if not self._told_to_end.is_set():  # whoever says it first
            self._leaves_sessions = leaves_sessions
            self._told_to_end.set()

    def _keep_cache_tidy(self) -> None:
        cache, now = self._service.engine.cache, time.monotonic()
        cache.store.flush()
        if now - self._tidied > _TIDY_SECONDS:
            self._tidied = now
            cache.tidy()

    def _restart(self) -> None:
        self._begin_anew = True
        self._end(leaves_sessions=True)

    def _freeze(self) -> None:
        if self._leaves_sessions:
            self._service.sessions.freeze()

    def _wait_for_calls(self, deadline: float) -> int:
        """Waits until no call runs; returns how many still do at the deadline."""
        while True:
            self._freeze()  # each time: somebody may have come through the door at the last moment
            left = self._acceptor.pulse.working()
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(0.05)

    def _close_door(self) -> None:
        path = self.options.address.path
        # Where systemd listens, by now or from the beginning, the file is systemd's.
        if self._file is not None and path.exists() and os.path.samestat(path.stat(), self._file):
            path.unlink(missing_ok=True)
        self._acceptor.close_door()

    def _watchdog(self, every: float) -> sd_notify.Watchdog:
        sessions = self._service.sessions
        return sd_notify.Watchdog(every / 2, Heartbeat().beat, lambda: bool(sessions.all()))

    def _is_idle(self) -> bool:
        if self.options.idle_exit is None or self._is_used():
            return False
        return time.monotonic() - self._service.sessions.last_change > self.options.idle_exit

    def _is_used(self) -> bool:
        return bool(self._service.sessions.all() or self._service.naming.named)


def _answer(service: JitService, session: Session, run: Run, lane: Lane) -> Answered:
    return runs.answer(service.engine, session, run, lane, service.refuses_calls)


def _checkpoint(address: str) -> Checkpoint | None:
    try:
        return Checkpoint.at(address)
    except (OSError, SettingsError) as error:
        log.warning("no arrays can be taken back, or left for the next daemon: %s", error)
        return None


def _begun_journal() -> Journal:
    try:
        return Journal.begin(runtime_folder(), folder.part())
    except (OSError, SettingsError) as error:
        log.warning("there is no crash journal: %s", error)
        return Journal()


def _take_lock(address: Address) -> IO[str]:
    """Holds the address for as long as this process lives, however it ends."""
    address.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = open(address.lock_path, "a+")  # noqa: SIM115
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(DaemonUnavailable, DaemonSilent):
                address.connect().close()
                raise AddressTaken(f"a daemon serves at {address} already") from None
            if time.monotonic() > deadline:
                raise AddressTaken(f"another daemon holds {address} and does not let go") from None
            time.sleep(0.05)
        else:
            lock.seek(0)
            lock.truncate()
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            return lock


def _address_of(inherited: socket.socket | None, address: Address) -> Address:
    return address if inherited is None else Address(Path(inherited.getsockname()))
