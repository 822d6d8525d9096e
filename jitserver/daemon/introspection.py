"""Snapshots of the daemon for `jitserver status --calls`, and pages of cache entries."""

import bisect
import itertools
import time
from collections.abc import Iterable

from jitclient.wire.introspection import Called, EntryInfo, Listed, Running, SessionInfo, Snapshot, Status
from jitclient.wire.messages import MAX_FRAME_BYTES
from jitserver.daemon.connection import DaemonConnection
from jitserver.daemon.in_progress import InProgress
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.programs.context import device_memory
from jitserver.programs.engine import Engine
from jitserver.store import journal
from jitserver.store.entry import Entry

_MAX_BYTES = MAX_FRAME_BYTES // 2
_SHORT_FIELDS = 512
_LONG_SECONDS = 1.0


def snapshot(
    engine: Engine, sessions: list[DaemonSession], making: InProgress, running: list[Running], status: Status
) -> Snapshot:
    """Return the state of the daemon, with the programs that were called."""
    return Snapshot(
        status=status,
        sessions=[_session(session) for session in sessions],
        making=making.now(),
        devices=device_memory(),
        programs=[_called(entry) for entry in _entries(engine, sessions) if entry.program.calls],
        running=running,
    )


def long_runs(connections: Iterable[DaemonConnection]) -> list[Running]:
    """Return the calls that have been running for at least a second, the longest first."""
    found = [_running(connection, time.monotonic()) for connection in list(connections)]
    return sorted(filter(None, found), key=lambda running: -running.seconds)


def _running(connection: DaemonConnection, now: float) -> Running | None:
    since, order = connection.busy_since, connection.order
    if since is None or now - since < _LONG_SECONDS or order is None or connection not in order.active.running:
        return None
    work = journal.read(bytes(connection.slot))
    key, label = (work.key, work.label) if work is not None else ("", "")
    program = "" if connection.session is None else connection.session.program
    return Running(key, label, now - since, connection.pid, connection.is_abandoned(), program)


def listed(found: list[EntryInfo], after: str) -> Listed:
    """Return as many of these entries as fit into a message, starting with the first key after `after`."""
    found = sorted((info for info in found if info.key > after), key=lambda info: info.key)
    limit = max(1, bisect.bisect(list(itertools.accumulate(map(_size, found))), _MAX_BYTES))
    return Listed(found[:limit], len(found) > limit)


def _size(info: EntryInfo) -> int:
    """Return the approximate size of an entry in a message, most of which is text."""
    texts = (info.label, info.signature, info.options, info.where, *info.context.values())
    return 4 * sum(map(len, texts)) + _SHORT_FIELDS


def _session(session: DaemonSession) -> SessionInfo:
    arrays, nbytes = len(session.arrays), session.array_bytes()
    return SessionInfo(
        session.pid,
        session.begun,
        session.calls,
        arrays,
        nbytes,
        session.program,
        session.call_seconds,
        session.moved_in,
    )


def _called(entry: Entry) -> Called:
    program = entry.program
    return Called(entry.key, entry.info.label, program.calls, program.call_seconds, program.queued_seconds)


def _entries(engine: Engine, sessions: list[DaemonSession]) -> list[Entry]:
    """Return the programs in the cache, and evicted programs that sessions still hold."""
    leased = itertools.chain.from_iterable(session.leased() for session in sessions)
    return list({id(entry): entry for entry in itertools.chain(engine.cache.memory.entries(), leased)}.values())
