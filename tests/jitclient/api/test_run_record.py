"""The record of a run: its lanes, its programs, and what a second run would cost."""

import pytest

from jitclient.api.report import report_of
from jitclient.api.run_record import Lane, RunRecord, SecondRun, record_of
from jitclient.calls.usage import Usage
from jitclient.core import spans
from jitclient.core.spans import Timeline
from jitclient.jaxside.compile_events import COMPILE, CompileEvents

from .run_records import MILLISECOND, made_run, record


def of(line: Timeline, keeps_compilations: bool = True) -> RunRecord:
    return record_of(line, "a.py", report_of(Usage(), CompileEvents()), keeps_compilations)


def second_run(line: Timeline, keeps_compilations: bool = True) -> tuple[float, float]:
    found = of(line, keeps_compilations).second_run
    assert found is not None
    return round(found.seconds, 6), round(found.made_seconds, 6)


def test_the_daemon_has_a_lane_below_the_thread_that_waits() -> None:
    found = record()
    assert found.lanes == [Lane("MainThread", 0, False, 3), Lane("daemon, for MainThread", 0, True, 1)]
    drawn = {(found.lanes[piece.lane].in_daemon, piece.kind): piece for piece in found.pieces}
    assert drawn[True, "compile"].label == "f(f32[3])"
    assert (drawn[False, "program"].depth, drawn[False, "wait"].depth, drawn[False, "trace"].depth) == (0, 1, 2)
    assert (drawn[False, "trace"].start, drawn[False, "trace"].seconds) == (0.21, 0.09)
    assert {piece.program for piece in found.pieces} == {-1, 0, 1}


def test_programs_are_counted_by_how_they_were_got() -> None:
    found = record()
    assert (found.made, found.found, found.seconds, found.name) == (1, 1, 1.0, "train.py")
    made, other = found.programs
    assert (made.program, made.level, made.waited, made.calls) == ("f(f32[3])", "made", 0.3, 1)
    assert (made.differences, made.sent, made.received) == (("global LR: 0.1 -> 0.2",), 12, 4)
    assert (other.level, other.saved, other.steps, other.calls) == ("memory", 2.5, {}, 0)


def test_a_second_run_has_all_but_what_was_made() -> None:
    assert record().second_run == SecondRun(0.71, 0.29)  # not the capture, which it needs, too


def test_a_second_run_traces_what_each_process_traces() -> None:
    line, clock = made_run()
    line.programs[0].is_traced_each_time = True
    before = second_run(line)
    with line.span("trace"):
        clock.now += 100
    assert before == (0.71, 0.29)
    assert second_run(line) == (0.81, 0.29)


def test_time_of_two_threads_is_saved_once() -> None:
    line, _ = made_run()
    line.add("wait", 400 * MILLISECOND, 550 * MILLISECOND, program=line.programs[0])
    assert second_run(line) == (0.66, 0.34)


@pytest.mark.parametrize(("keeps", "seconds"), [(True, 0.61), (False, 0.71)])
def test_compilations_of_jax_are_saved_if_they_are_kept(keeps: bool, seconds: float) -> None:
    line, _ = made_run()
    line.add(COMPILE, 700 * MILLISECOND, 800 * MILLISECOND, "add")
    assert second_run(line, keeps)[0] == seconds


def test_a_program_that_could_not_be_made_runs_here() -> None:
    line, _ = made_run()
    with pytest.raises(ValueError, match="no"), line.program("h()", ""):
        raise ValueError("no")
    found = of(line)
    assert (found.programs[2].level, found.programs[2].why, found.made) == ("here", "no", 1)


def test_a_path_need_not_be_text() -> None:
    line, _ = made_run()
    line.programs[0].where = "a\udcff.py:1"
    found = record_of(line, "a\udcff.py", report_of(Usage(), CompileEvents()), True)
    assert (found.name, found.programs[0].where) == ("a\\udcff.py", "a\\udcff.py:1")


def test_nothing_is_computed_from_a_part_of_the_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    line, _ = made_run()
    monkeypatch.setattr(spans, "MAX_SPANS", len(line.spans))
    line.add("trace", 0, 1)
    found = of(line)
    assert (found.second_run, found.dropped) == (None, 1)


def test_a_daemon_elsewhere_with_the_number_of_this_process_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 4321)
    assert (record().pid, record().daemon) == (4321, 0)
