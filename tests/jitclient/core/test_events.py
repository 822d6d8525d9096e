"""The events of a process: those of each thread are nested, and have their programs; few are kept without a report."""

import os
import threading

import pytest

from jitclient.core import events
from jitclient.core.events import Log


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Log:
    made = Log(clock)
    made.ask()
    return made


def shown(log: Log) -> list[tuple[str, int, int]]:
    return [(event.kind, event.start - log.origin, event.end - log.origin) for event in log.events]


def test_the_latest_events_are_kept_until_a_report_needs_all(clock: Clock) -> None:
    log = Log(clock)
    for n in range(events.KEPT + 5):
        with log.program(str(n), ""):
            pass
    assert [log.events[0].label, len(log.events), log.programs] == ["5", events.KEPT, []]
    log.ask()
    assert not log.events
    for n in range(events.KEPT + 5):
        with log.program(str(n), ""):
            pass
    log.ask()
    assert (len(log.events), len(log.programs)) == (events.KEPT + 5,) * 2


def test_counts_have_a_kind_and_are_sorted() -> None:
    log = Log()
    for key, seconds in ((("b", "y"), 2.0), (("b", "x"), 0.5), (("b", "y"), 1.0), (("a",), 0.25)):
        log.count(*key, seconds=seconds)
    assert list(log.counted("b").items()) == [(("x",), (1, 0.5)), (("y",), (2, 3.0))]
    assert (log.total("b"), log.total("a"), log.total("c")) == ((3, 3.5), (1, 0.25), (0, 0.0))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_a_forked_child_begins_anew(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.setattr(events, "log", log)
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with log._lock:
            is_held.set()
            may_end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    log.counts["a",] = 1, 1.0
    child = os.fork()
    if child == 0:
        with log.span("trace"):  # the lock is held in the parent
            log.count("b")
        os._exit(log.is_asked or log.total("a") != (0, 0.0) or log.total("b") != (1, 0.0))
    may_end.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    assert log.is_asked


def test_events_have_their_program(log: Log, clock: Clock) -> None:
    clock.now += 10
    with log.program("f(i32[])", "a.py:1") as record, log.span("capture", "f"):
        clock.now += 5
    with log.span("import"):
        clock.now += 1
    assert shown(log) == [("capture", 10, 15), ("program", 10, 15), ("import", 15, 16)]
    assert [event.program for event in log.events] == [record, record, None]
    assert (record.number, record.label, record.where) == (0, "f(i32[])", "a.py:1")


def test_an_event_of_an_error_ends_and_the_program_has_the_error(log: Log, clock: Clock) -> None:
    def fail() -> None:
        with log.program("f()", ""):
            clock.now += 7
            raise ZeroDivisionError("of  f\nitself")

    with pytest.raises(ZeroDivisionError):
        fail()
    assert shown(log) == [("program", 0, 7)]
    assert log.programs[0].why == "of f itself"
    assert log.program_here() is None


def test_each_thread_has_a_number(log: Log) -> None:
    def work() -> None:
        with log.program("g()", ""), log.span("trace"):
            pass

    with log.program("f()", ""):
        for _ in range(2):
            other = threading.Thread(target=work, name="other")
            other.start()
            other.join()
        with log.span("trace"):
            pass
    lanes = {(event.thread, event.program and event.program.number) for event in log.events}
    assert lanes == {((0, "other"), 1), ((1, "other"), 2), ((2, "MainThread"), 0)}


def test_more_events_than_a_report_has_are_counted(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 2)
    for n in range(5):
        log.add("trace", n, n + 1)
    assert (len(log.events), log.dropped) == (2, 3)


# ---- events of jax, which have durations alone


def test_an_event_encloses_what_began_in_it(log: Log, clock: Clock) -> None:
    clock.now += 1000
    log.add_measured("trace", 200e-9, "inner")
    clock.now += 10
    # Reported 20 ns after its end, so that it seems to begin after the inner trace.
    log.add_measured("trace", 205e-9, "outer")
    assert shown(log) == [("trace", 800, 1000), ("trace", 800, 1010)]


def test_an_event_follows_the_one_before(log: Log, clock: Clock) -> None:
    clock.now += 1000
    log.add_measured("trace", 100e-9, "f")
    clock.now += 50
    # By another clock, which is a little slower.
    log.add_measured("lower", 60e-9, "f")
    assert shown(log) == [("trace", 900, 1000), ("lower", 1000, 1050)]


def test_an_event_stays_in_the_span_that_is_open(log: Log, clock: Clock) -> None:
    clock.now += 100
    with log.span("run here"):
        clock.now += 10
        log.add_measured("compile", 30e-9, "f")
    assert shown(log) == [("compile", 100, 110), ("run here", 100, 110)]


def test_the_traces_inside_of_an_own_trace_are_left_out(log: Log, clock: Clock) -> None:
    clock.now += 100
    with log.span("trace"):
        log.add_measured("trace", 1e-9, "inner")
        log.add_measured("compile", 1e-9, "constant")
    assert [kind for kind, *_ in shown(log)] == ["compile", "trace"]


# ---- calls


def test_calls_are_added_up_and_the_first_and_long_ones_are_events(log: Log, clock: Clock) -> None:
    with log.program("f()", "") as record:
        pass
    log.events.clear()
    for nanoseconds in (10, 20, events.MIN_NANOSECONDS):
        start = log.now()
        clock.now += nanoseconds
        log.add_call("call", record, start, sent=3, received=4)
    assert (record.times, record.nanoseconds) == (3, 30 + events.MIN_NANOSECONDS)
    assert (record.sent, record.received) == (9, 12)
    assert [(start, event.program) for event, (_, start, _) in zip(log.events, shown(log), strict=True)] == [
        (0, record),
        (30, record),
    ]


def test_transfers_without_a_program_are_added_up_by_kind(log: Log, clock: Clock) -> None:
    for _ in range(2):
        start = log.now()
        clock.now += 10
        log.add_call("fetch", None, start, received=8)
    [(kind, total)] = log.transfers.items()
    assert (kind, total.times, total.nanoseconds, total.sent, total.received) == ("fetch", 2, 20, 0, 16)
    assert shown(log) == [("fetch", 0, 10)]
