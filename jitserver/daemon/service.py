"""The rpyc service: one exposed method for each verb."""

import dataclasses
import functools
import logging
import os
import platform
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from rpyc.core.service import Service

from jitclient.core import events
from jitclient.core.directories import process_settings
from jitclient.errors import DaemonDraining, DaemonUnavailable, JitserverError, ProtocolError
from jitclient.version import __version__
from jitclient.wire import explaining, introspection, messages, named_arrays, recording
from jitclient.wire.encoding import decoded
from jitclient.wire.messages import PROTOCOL
from jitclient.wire.reply import encoded_answer
from jitserver.daemon.connection import DaemonConnection
from jitserver.daemon.in_progress import InProgress
from jitserver.daemon.introspection import listed, long_runs, snapshot
from jitserver.daemon.named_array_requests import NamedArrayRequests
from jitserver.daemon.sessions.registry import Sessions
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs import context
from jitserver.programs.counters import Counters
from jitserver.programs.devices.backend import backend
from jitserver.programs.engine import Engine
from jitserver.programs.exceptions import TraceRaised, failure_of
from jitserver.programs.inspection import inspected
from jitserver.programs.programs import Hit
from jitserver.programs.recorder import memory_profile
from jitserver.store.entry import Entry
from jitserver.store.explain import explain as compared
from jitserver.system.memory_limits import resident_bytes
from jitserver.system.shared_memory import BlockPool

log = logging.getLogger(__name__)

Handler = Callable[[Any, DaemonConnection, Any], Any]


def verb(message: Any) -> Callable[[Handler], Callable[["JitService", DaemonConnection, bytes], bytes]]:
    """Return a decorator that makes a method the handler of a verb.

    The handler receives the decoded message; its return value or exception is encoded.
    """

    def decorate(handler: Handler) -> Callable[["JitService", DaemonConnection, bytes], bytes]:
        @functools.wraps(handler)
        def exposed(self: "JitService", connection: DaemonConnection, payload: bytes) -> bytes:
            try:
                return encoded_answer(handler(self, connection, decoded(payload, message)))
            except ProtocolError:
                raise
            except msgspec.DecodeError as error:
                raise ProtocolError(f"{handler.__name__}: {error}") from error
            # The client must receive every exception of user code, including SystemExit.
            except BaseException as error:
                return encoded_answer(_failure(error))

        return exposed

    return decorate


class JitService(Service):  # type: ignore[misc]
    """The verbs of this daemon. A single object serves all connections."""

    def __init__(
        self,
        engine: Engine,
        counters: Counters,
        pool: BlockPool,
        stop: Callable[[], None],
        restart: Callable[[str], None],
        array_limits: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.engine = engine
        self.counters = counters
        self.in_progress = InProgress()
        self.sessions = Sessions()
        self.named_arrays = NamedArrayRequests(engine, self.sessions)
        self.sessions.budget = self.named_arrays.limit(array_limits)
        self.pool = pool
        self.address = ""
        self.drain_seconds = 0.0
        self.restarted = ""
        self.connections: set[DaemonConnection] = set()
        self.draining = False
        self.refuses_calls = False
        self._stop = stop
        self._restart = restart
        engine.health.when_failed = restart
        self._started = time.monotonic()
        self._process = secrets.token_bytes(8)

    # ---- sessions

    @verb(messages.Hello)
    def exposed_hello(self, connection: DaemonConnection, hello: messages.Hello) -> messages.Welcome:
        if connection.session is not None:
            raise ProtocolError("this connection has a session already")
        self._check_open()
        self._check_packages(edited=True)
        try:
            self.engine.start_thread()
        except DaemonUnavailable as error:
            raise self.engine.health.reported(error) from error
        if hello.program:
            connection.mark_remote()
        resumed = self.sessions.resume(hello.token, connection.pid)
        if resumed is None and connection.is_surplus:
            raise DaemonUnavailable(f"the daemon (pid {os.getpid()}) has reached its limit of connections")
        connection.session, first = resumed or self.sessions.begin(connection.pid)
        connection.session.program = hello.program
        connection.order = connection.session.order(hello.client, connection.pid)
        begun, before = connection.order.take_over(connection)
        if isinstance(before, DaemonConnection):
            before.shut_down()
        connection.slot = self.engine.journal.thread_state.slot  # of this thread, which serves the connection
        return messages.Welcome(
            protocol=PROTOCOL,
            version=__version__,
            python=platform.python_version(),
            packages=context.jax_versions(),
            platform=backend().export_platform,
            pid=os.getpid(),
            token=connection.session.token,
            resumed=resumed is not None,
            first_handle=first,
            begun=begun,
            lends=connection.lends,
            process=self._process,
            lost="" if resumed else self.sessions.lost.get(hello.token, ""),
            installed=context.packages().installed() if hello.program else {},
            settings=process_settings(),
            finishes_calls=backend().finishes_calls,
            devices=len(context.device_names()),
        )

    @verb(None)
    def exposed_goodbye(self, connection: DaemonConnection, _: None) -> None:
        self.sessions.goodbye(_session(connection))

    @verb(messages.Report)
    def exposed_report(self, connection: DaemonConnection, report: messages.Report) -> None:
        self.counters.add(local_runs=report.local_runs, client_traces=report.client_traces)
        if report.released:
            _session(connection).release(report.released)

    # ---- programs

    @verb(messages.Lookup)
    def exposed_lookup(self, connection: DaemonConnection, lookup: messages.Lookup) -> messages.Found:
        self._check_packages(lookup.packages)
        session = _session(connection)
        self._check_open()
        with events.log.phases("looking up") as done, events.log.observed_by(connection.report_phase):
            found = self.engine.programs.find(lookup)
        if isinstance(found, Hit):
            return messages.Found(self._prepared(session, found.entry, found.level, done))
        return messages.Found(names=found or ())

    @verb(messages.Upload)
    def exposed_upload(self, connection: DaemonConnection, upload: messages.Upload) -> None:
        _session(connection)
        connection.incoming.add(upload)

    @verb(messages.Prepare)
    def exposed_prepare(self, connection: DaemonConnection, request: messages.Prepare) -> messages.Prepared:
        self._check_open()
        session = _session(connection)
        key = self.engine.key_of(request.lookup)
        if request.last is not None:
            connection.incoming.add(request.last)
            request.last = None  # the candidate keeps the request
        with (
            connection.incoming.taken(request.traced.key if request.traced else request.lookup.capture_key) as payload,
            self.in_progress.recording(key.text, request, connection),
            events.log.phases("waiting") as done,
        ):
            entry, made = self.engine.programs.prepare(key, request, payload)
        if made:
            done[0] = done[0]._replace(kind="unpacking")
        return self._prepared(session, entry, "made" if made else "memory", done)

    @verb(messages.Settle)
    def exposed_settle(self, connection: DaemonConnection, settled: messages.Settle) -> messages.Settled:
        _session(connection)
        return self.engine.programs.settle(settled)

    @verb(messages.Load)
    def exposed_load(self, connection: DaemonConnection, request: messages.Load) -> messages.Executable:
        session = _session(connection)
        data = self.engine.programs.executable_of(session.executable(request.executable))
        if len(data) > request.max_bytes:
            return messages.Executable(len(data))
        session.moved_in += bool(data)
        return messages.Executable(len(data), bytes(data))

    @verb(messages.Inspect)
    def exposed_inspect(self, connection: DaemonConnection, request: messages.Inspect) -> messages.Inspected:
        return inspected(_session(connection).executable(request.executable).program, request.what)

    def _prepared(
        self, session: DaemonSession, entry: Entry, level: str, done: Sequence[events.Event]
    ) -> messages.Prepared:
        made, seconds = level in ("made", "remade"), entry.info.seconds
        return messages.Prepared(
            executable=session.lease(entry),
            results=entry.program.results,
            tree=entry.program.tree,
            made=entry.program.made,
            donated=entry.program.donated,
            may_raise=entry.program.may_raise,
            seconds=seconds if made else {},
            evidence=entry.program.shown_evidence(),
            slots=entry.program.slots,
            callbacks=entry.program.callbacks,
            foreign=entry.program.foreign,
            has_effects=entry.program.has_effects,
            level=level,
            saved=0.0 if made else sum(seconds.values()),
            saved_compiling=0.0 if made else seconds.get("compile", 0.0),
            why=entry.program.why_remade if level == "remade" else "",
            phases=tuple(
                messages.Phase(each.kind, (each.start - done[0].start) / 1e9, (each.end - each.start) / 1e9)
                for each in done
            ),
        )

    # ---- named arrays

    @verb(named_arrays.Find)
    def exposed_find(self, connection: DaemonConnection, find: named_arrays.Find) -> named_arrays.FoundArrays | None:
        self._check_packages(find.packages)
        self._check_open()
        return self.named_arrays.find(_session(connection), find)

    @verb(named_arrays.Keep)
    def exposed_keep(self, connection: DaemonConnection, keep: named_arrays.Keep) -> None:
        self._check_open()
        self.named_arrays.keep(_session(connection), keep)

    @verb(named_arrays.Forget)
    def exposed_forget(self, connection: DaemonConnection, forget: named_arrays.Forget) -> list[named_arrays.KeptInfo]:
        return self.named_arrays.forget(forget.name)

    @verb(None)
    def exposed_arrays(self, connection: DaemonConnection, _: None) -> named_arrays.Holdings:
        return self.named_arrays.holdings()

    # ---- introspection

    @verb(None)
    def exposed_devices(self, connection: DaemonConnection, _: None) -> list[messages.DeviceInfo]:
        return context.device_infos()

    @verb(None)
    def exposed_status(self, connection: DaemonConnection, _: None) -> introspection.Status:
        return self.status()

    @verb(None)
    def exposed_snapshot(self, connection: DaemonConnection, _: None) -> introspection.Snapshot:
        return self.snapshot()

    def snapshot(self) -> introspection.Snapshot:
        """Return the state of the daemon, with the programs that were called."""
        running = long_runs(self.connections)
        return snapshot(self.engine, self.sessions.all(), self.in_progress, running, self.status())

    def status(self) -> introspection.Status:
        """Return the daemon's counters, and the sizes of its memory and collections."""
        sessions, store = self.sessions.all(), self.engine.cache.store
        compilations, compilation_bytes = store.compilations()
        return introspection.Status(
            pid=os.getpid(),
            version=__version__,
            address=self.address,
            uptime_s=time.monotonic() - self._started,
            python=platform.python_version(),
            packages=context.jax_versions(),
            devices=context.device_names(),
            memory_bytes=resident_bytes(),
            sessions=len(sessions),
            arrays=sum(len(session.arrays) for session in sessions),
            array_bytes=sum(session.array_bytes() for session in sessions),
            shared_bytes=self.pool.nbytes,
            lent_bytes=self.pool.lent_bytes,
            entries=len(self.engine.cache.memory),
            classes=context.class_count(),
            names=len(self.named_arrays.trees),
            lost_names=tuple(name for name, tree in self.named_arrays.trees.all().items() if tree.why_lost),
            disk_bytes=store.nbytes,
            compilations=compilations,
            compilation_bytes=compilation_bytes,
            other_disk_bytes=store.shared.other_bytes if store.shared is not None else 0,
            drain_seconds=self.drain_seconds,
            max_disk_bytes=store.shared.max_bytes if store.shared is not None else 0,
            restarted=self.restarted,
            share=None if self.engine.cache.share is None else self.engine.cache.share.status(),
            recordings=int(self.engine.recorder.is_on),
            abandoned=sum(run.gone for run in long_runs(self.connections)),
            abandoned_programs=sum(not making.pids for making in self.in_progress.now()),
            **dataclasses.asdict(self.counters),
        )

    @verb(recording.Record)
    def exposed_record(self, connection: DaemonConnection, options: recording.Record) -> None:
        self._check_open()
        if connection.recording is not None:
            raise ProtocolError("this connection has a recording already")
        connection.recording = self.engine.recorder.begin(options)

    @verb(int)
    def exposed_recorded(self, connection: DaemonConnection, start: int) -> bytes:
        if connection.recording is None:
            raise ProtocolError("this connection has no recording")
        return connection.recording.fetch(start)

    @verb(None)
    def exposed_clock(self, connection: DaemonConnection, _: None) -> int:
        return time.time_ns()

    @verb(None)
    def exposed_memory(self, connection: DaemonConnection, _: None) -> bytes:
        return memory_profile()

    @verb(introspection.Match)
    def exposed_entries(self, connection: DaemonConnection, match: introspection.Match) -> introspection.Listed:
        return listed(self.engine.cache.infos(match.prefix), match.after)

    @verb(introspection.Show)
    def exposed_show(self, connection: DaemonConnection, request: introspection.Show) -> messages.Inspected | None:
        self._check_open()
        with events.log.observed_by(connection.report_phase):
            return self.engine.show(request.key, request.what)

    @verb(explaining.Explain)
    def exposed_explain(self, connection: DaemonConnection, request: explaining.Explain) -> explaining.Explained:
        return self.engine.explain(request)

    @verb(explaining.Why)
    def exposed_why(self, connection: DaemonConnection, request: explaining.Why) -> explaining.Explained | None:
        return compared(self.engine.cache, request)

    @verb(introspection.Match)
    def exposed_remove(self, connection: DaemonConnection, match: introspection.Match) -> list[str]:
        return self.engine.programs.remove(match.prefix)

    @verb(introspection.Pin)
    def exposed_pin(self, connection: DaemonConnection, request: introspection.Pin) -> list[str]:
        return self.engine.cache.pin(request.prefix, request.pinned)

    @verb(None)
    def exposed_collect(self, connection: DaemonConnection, _: None) -> int:
        return self.engine.cache.store.collect()

    @verb(None)
    def exposed_stop(self, connection: DaemonConnection, _: None) -> None:
        self._stop()

    # ---- the rest

    def on_disconnect(self, connection: DaemonConnection) -> None:
        """Do nothing; rpyc calls this method after a connection has closed."""

    def _check_packages(self, names: Iterable[str] = (), edited: bool = False) -> None:
        packages = context.packages()
        changed = packages.replaced(names) or (packages.edited() if edited else [])
        if changed:
            reason = (
                f"the daemon restarts, because installed packages changed since it loaded them ({', '.join(changed)})"
            )
            self._restart(reason)
            raise DaemonDraining(reason)

    def _check_open(self) -> None:
        if self.draining:
            raise DaemonDraining("the daemon is stopping and accepts no new calls")


def _failure(error: BaseException) -> messages.Failure:
    """Convert an exception of a verb to a message, with references to the capture that the request concerns."""
    if isinstance(error, TraceRaised):
        return msgspec.structs.replace(failure_of(error.error, error.loaded), is_final=error.is_final)
    # An OSError here is the daemon's own, because it comes from no user code.
    if isinstance(error, OSError) and not isinstance(error, JitserverError):
        error = DaemonUnavailable(f"the daemon cannot answer: {error}")
    return failure_of(error)


def _session(connection: DaemonConnection) -> DaemonSession:
    if connection.session is None:
        raise ProtocolError("this connection has no session: it sent no hello")
    return connection.session
