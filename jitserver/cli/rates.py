"""Rates of the daemon's work between two snapshots."""

import dataclasses

from jitclient.wire.introspection import Called, SessionInfo, Snapshot


@dataclasses.dataclass(frozen=True)
class Busy:
    """A session, its calls per second, the share of the time for which they took, and its transfers."""

    session: SessionInfo
    calls_per_second: float
    busy: float
    received_per_second: float
    sent_per_second: float


@dataclasses.dataclass(frozen=True)
class Rates:
    """The amounts and rates of work within `seconds`."""

    seconds: float
    calls: int
    calls_per_second: float
    hits: int
    misses: int
    # The share of requested programs that were found; None if no program was requested.
    hit_rate: float | None
    sessions: tuple[Busy, ...]  # the busiest first
    hottest: tuple[Called, ...]  # called programs, the most time-consuming first


class RateMeter:
    """Meter that compares each snapshot with the previous one, and the first one with the start of the daemon."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        # Previous totals by key, because a snapshot contains only programs called since the previous one.
        self._called: dict[str, Called] = {}

    @property
    def since(self) -> float:
        """The moment from which the next snapshot should list calls."""
        return self._before.now if self._before is not None else 0.0

    def rates(self, after: Snapshot) -> Rates:
        """Return the rates since the last snapshot."""
        before, now = self._before, after.status
        if before is not None and before.status.pid != now.pid:  # the daemon was restarted
            before, self._called = None, {}
        seconds = max(after.now - before.now if before is not None else now.uptime_s, 1e-9)
        calls, hits, misses = (
            getattr(now, name) - (getattr(before.status, name) if before is not None else 0)
            for name in ("calls", "hits", "misses")
        )
        known = {(s.pid, s.begun): s for s in before.sessions} if before is not None else {}
        rates = Rates(
            seconds=seconds,
            calls=calls,
            calls_per_second=calls / seconds,
            hits=hits,
            misses=misses,
            hit_rate=hits / (hits + misses) if hits + misses else None,
            sessions=_sessions(known, after, seconds),
            hottest=self._hottest(after),
        )
        self._called.update({called.key: called for called in after.programs})
        self._before = after
        return rates

    def _hottest(self, after: Snapshot) -> tuple[Called, ...]:
        found = [_since(self._called.get(called.key), called) for called in after.programs]
        return tuple(sorted((hot for hot in found if hot.calls), key=lambda hot: (-hot.seconds, -hot.calls)))


def _sessions(known: dict[tuple[int, float], SessionInfo], after: Snapshot, seconds: float) -> tuple[Busy, ...]:
    found = []
    for session in after.sessions:
        within = max(min(seconds, after.now - session.begun), 1e-9)
        earlier = known.get((session.pid, session.begun))
        rates = [
            (getattr(session, name) - (getattr(earlier, name) if earlier is not None else 0)) / within
            for name in ("calls", "seconds", "received", "sent")
        ]
        found.append(Busy(session, *rates))
    return tuple(sorted(found, key=lambda busy: (-busy.calls_per_second, busy.session.begun)))


def _since(before: Called | None, after: Called) -> Called:
    if before is None or before.calls > after.calls:  # it was made again
        return after
    return Called(
        after.key,
        after.label,
        after.calls - before.calls,
        after.seconds - before.seconds,
        after.queued - before.queued,
    )
