"""Rates between two snapshots of a daemon."""

from typing import Any

import pytest

from jitclient.wire.introspection import Called, SessionInfo, Snapshot, Status
from jitserver.cli.rates import RateMeter

NOTHING = dict.fromkeys(Status.__struct_fields__, 0)


def snapshot(
    now: float,
    sessions: tuple[SessionInfo, ...] = (),
    programs: tuple[Called, ...] = (),
    **counted: Any,
) -> Snapshot:
    status = Status(**{**NOTHING, "pid": 1, "uptime_s": now - 100, **counted})
    return Snapshot(now, status, list(sessions), [], [], list(programs))


def test_the_first_snapshot_counts_since_the_daemon_started() -> None:
    rates = RateMeter().rates(snapshot(104, calls=8, hits=3, misses=1, programs=(Called("k", "f()", 8, 0.5),)))
    assert (rates.seconds, rates.calls_per_second, rates.hit_rate) == (4, 2, 0.75)
    assert [(hot.key, hot.calls, hot.seconds) for hot in rates.hottest] == [("k", 8, 0.5)]


def test_later_snapshots_count_since_the_previous_one() -> None:
    meter = RateMeter()
    assert meter.since == 0
    meter.rates(snapshot(104, calls=8, hits=3, misses=1))
    assert meter.since == 104
    rates = meter.rates(snapshot(106, calls=18, hits=3, misses=1))
    assert (rates.seconds, rates.calls, rates.calls_per_second) == (2, 10, 5)
    assert (rates.hits, rates.misses, rates.hit_rate) == (0, 0, None)


def test_the_hottest_programs_took_longest_and_uncalled_ones_are_left_out() -> None:
    meter = RateMeter()
    meter.rates(snapshot(104, programs=(Called("a", "a()", 1, 0.5), Called("b", "b()", 1, 0.5, 0.25))))
    rates = meter.rates(snapshot(105, programs=(Called("a", "a()", 9, 0.625), Called("b", "b()", 2, 2.5, 0.75))))
    found = [(hot.key, hot.calls, hot.seconds, hot.queued) for hot in rates.hottest]
    assert found == [("b", 1, 2, 0.5), ("a", 8, 0.125, 0)]
    assert meter.rates(snapshot(106)).hottest == ()
    rates = meter.rates(snapshot(107, programs=(Called("b", "b()", 3, 2.75),)))
    assert [(hot.calls, hot.seconds) for hot in rates.hottest] == [(1, 0.25)], "counted from when it was called last"


def test_a_program_that_was_made_again_counts_from_zero() -> None:
    meter = RateMeter()
    meter.rates(snapshot(104, programs=(Called("a", "a()", 9, 0.5),)))
    [hot] = meter.rates(snapshot(105, programs=(Called("a", "a()", 2, 0.25),))).hottest
    assert (hot.calls, hot.seconds) == (2, 0.25)


def test_the_busiest_sessions_come_first() -> None:
    meter = RateMeter()
    old = SessionInfo(7, 100, 50, 0, 0, seconds=4.0, received=1000, sent=100)
    now = SessionInfo(7, 100, 60, 0, 0, seconds=5.0, received=6000, sent=110)
    new = SessionInfo(8, 109, 40, 0, 0, seconds=0.5, received=7, sent=8)
    meter.rates(snapshot(105, sessions=(old,)))
    rates = meter.rates(snapshot(110, sessions=(now, new)))
    assert [(busy.session, busy.calls_per_second) for busy in rates.sessions] == [(new, 40), (now, 2)]
    shares = [(busy.busy, busy.received_per_second, busy.sent_per_second) for busy in rates.sessions]
    assert shares == [(0.5, 7, 8), (0.2, 1000, 2)]


def test_after_a_restart_the_counts_begin_again() -> None:
    meter = RateMeter()
    meter.rates(snapshot(104, calls=8, programs=(Called("a", "a()", 1, 0.5),)))
    rates = meter.rates(snapshot(102, pid=2, calls=6, programs=(Called("a", "a()", 3, 0.75),)))
    assert (rates.seconds, rates.calls) == (2, 6)
    assert [hot.calls for hot in rates.hottest] == [3]
    assert rates.calls_per_second == pytest.approx(3)
