"""The spans of a run: those of each thread are nested, and have their programs."""

import threading

import pytest

from jitclient.core import spans as module
from jitclient.core.spans import Span, Timeline, nested


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
def line(clock: Clock) -> Timeline:
    return Timeline(clock)


def shown(line: Timeline) -> list[tuple[str, int, int]]:
    return [(span.kind, span.start, span.end) for span in line.spans]


def test_spans_begin_with_the_time_line_and_have_their_program(line: Timeline, clock: Clock) -> None:
    clock.now += 10
    with line.program("f(i32[])", "a.py:1") as record, line.span("capture", "f"):
        clock.now += 5
    with line.span("import"):
        clock.now += 1
    assert shown(line) == [("capture", 10, 15), ("program", 10, 15), ("import", 15, 16)]
    assert [span.program for span in line.spans] == [0, 0, None]
    assert (record.number, record.label, record.where) == (0, "f(i32[])", "a.py:1")


def test_a_span_of_an_error_ends_and_the_program_has_the_error(line: Timeline, clock: Clock) -> None:
    def fail() -> None:
        with line.program("f()", ""):
            clock.now += 7
            raise ZeroDivisionError("of  f\nitself")

    with pytest.raises(ZeroDivisionError):
        fail()
    assert shown(line) == [("program", 0, 7)]
    assert line.programs[0].why == "of f itself"
    assert line.program_here() is None


def test_each_thread_has_a_lane(line: Timeline) -> None:
    def work() -> None:
        with line.program("g()", ""), line.span("trace"):
            pass

    with line.program("f()", ""):
        for _ in range(2):
            other = threading.Thread(target=work, name="other")
            other.start()
            other.join()
        with line.span("trace"):
            pass
    lanes = {(span.lane, span.program) for span in line.spans}
    assert lanes == {(0, 1), (1, 2), (2, 0)}
    assert line.threads[:2] == ["other", "other"]


def test_more_spans_than_a_report_has_are_counted(line: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SPANS", 2)
    for n in range(5):
        line.add("trace", n, n + 1)
    assert (len(line.spans), line.dropped, line.nanoseconds_of("trace")) == (2, 3, 5)


# ---- events of jax, which have durations alone


def test_an_event_encloses_what_began_in_it(line: Timeline, clock: Clock) -> None:
    clock.now += 1000
    line.add_event("trace", 200e-9, "inner")
    clock.now += 10
    # Reported 20 ns after its end, so that it seems to begin after the inner trace.
    line.add_event("trace", 205e-9, "outer")
    assert shown(line) == [("trace", 800, 1000), ("trace", 800, 1010)]


def test_an_event_follows_the_one_before(line: Timeline, clock: Clock) -> None:
    clock.now += 1000
    line.add_event("trace", 100e-9, "f")
    clock.now += 50
    # By another clock, which is a little slower.
    line.add_event("lower", 60e-9, "f")
    assert shown(line) == [("trace", 900, 1000), ("lower", 1000, 1050)]


def test_an_event_stays_in_the_span_that_is_open(line: Timeline, clock: Clock) -> None:
    clock.now += 100
    with line.span("run here"):
        clock.now += 10
        line.add_event("compile", 30e-9, "f")
    assert shown(line) == [("compile", 100, 110), ("run here", 100, 110)]


def test_the_traces_inside_of_an_own_trace_are_left_out(line: Timeline, clock: Clock) -> None:
    clock.now += 100
    with line.span("trace"):
        line.add_event("trace", 1e-9, "inner")
        line.add_event("compile", 1e-9, "constant")
    line.add_event("trace", 1e-9, "short", min_seconds=1.0)
    assert [kind for kind, *_ in shown(line)] == ["compile", "trace"]


# ---- calls


def test_calls_are_added_up_and_the_first_and_long_ones_are_spans(line: Timeline, clock: Clock) -> None:
    with line.program("f()", "") as record:
        pass
    line.spans.clear()
    for nanoseconds in (10, 20, module.MIN_NANOSECONDS):
        start = line.now()
        clock.now += nanoseconds
        line.count("call", record, start, sent=3, received=4)
    assert (record.calls, record.nanoseconds) == (3, 30 + module.MIN_NANOSECONDS)
    assert (record.sent, record.received) == (9, 12)
    assert [(span.start, span.program) for span in line.spans] == [(0, 0), (30, 0)]


def test_transfers_without_a_program_are_added_up_by_kind(line: Timeline, clock: Clock) -> None:
    for _ in range(2):
        start = line.now()
        clock.now += 10
        line.count("fetch", None, start, received=8)
    assert line.totals == {"fetch": (2, 20, 0, 16)}
    assert shown(line) == [("fetch", 0, 10)]


# ---- drawing


def test_of_spans_with_the_same_times_the_later_one_is_around_the_others() -> None:
    spans = [Span(0, False, kind, 0, 5) for kind in ("inner", "outer")]
    assert [(span.kind, depth) for span, depth in nested(spans)] == [("outer", 0), ("inner", 1)]


def test_spans_of_a_lane_are_nested_and_never_overlap() -> None:
    spans = [Span(0, False, kind, *times) for kind, *times in (("c", 5, 12), ("a", 0, 10), ("b", 0, 4), ("d", 12, 13))]
    drawn = [(span.kind, span.start, span.end, depth) for span, depth in nested(spans)]
    assert drawn == [("a", 0, 10, 0), ("b", 0, 4, 1), ("c", 5, 10, 1), ("d", 12, 13, 0)]
