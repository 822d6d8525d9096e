"""Contenders take turns, a failure takes out one of them, and verdicts follow from ratios within a turn."""

import math

import pytest

from benchmarks.measure import Effort, Samples, interleave, percentile
from benchmarks.result import Row, Summary, Target


def test_contenders_take_turns() -> None:
    order: list[str] = []
    takers = {name: lambda name=name: order.append(name) or len(order) for name in "abc"}
    samples = interleave(takers, rounds=2, label="", warm=1)
    assert order == list("abcabcabc")
    assert samples.taken == {"a": [4, 7], "b": [5, 8], "c": [6, 9]}


def test_one_that_fails_is_out_and_the_others_go_on() -> None:
    turns = iter([1.0, ValueError("no more")])

    def fails_in_the_second_turn() -> float:
        turn = next(turns)
        if isinstance(turn, Exception):
            raise turn
        return turn

    samples = interleave({"a": fails_in_the_second_turn, "b": lambda: 2.0}, rounds=3, label="", warm=0)
    assert samples.taken == {"b": [2.0, 2.0, 2.0]}
    assert samples.failed == {"a": "no more"}


def test_a_ratio_is_taken_within_each_turn() -> None:
    """The machine was ten times slower in one turn: the ratio does not see it."""
    taken = {"jitserver": [1.0, 10.0, 1.0], "other": [2.0, 20.0, 2.0]}
    result = Target(0.5, times="other").result(taken)
    assert result["measured"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert result["verdict"] == "met"


@pytest.mark.parametrize(
    ("target", "median", "verdict"),
    [
        (Target(3.0), 3.0, "met"),
        (Target(2.9), 3.0, "missed"),
        (Target(0.7, times="other"), 0.75, "missed"),
        (Target(-0.5, beyond="other"), -1.0, "met"),
        (Target(5.0, of="other"), 4.0, "met"),
    ],
)
def test_verdicts(target: Target, median: float, verdict: str) -> None:
    result = target.result({"jitserver": [3.0], "other": [4.0]})
    assert (result["measured"]["median"], result["verdict"]) == (median, verdict)


@pytest.mark.parametrize(
    ("target", "taken", "verdict"),
    [
        (Target(1.0, times="other"), {"jitserver": [1.0]}, "not compared"),
        (Target(1.0, times="other"), {"other": [1.0]}, "failed"),
        (Target(1.0), {}, "failed"),
        (Target(1.0, not_yet="later"), {"jitserver": [0.1]}, "not yet"),
    ],
)
def test_what_was_not_measured_is_never_met(target: Target, taken: dict[str, list[float]], verdict: str) -> None:
    result = target.result(taken)
    assert (result["measured"], result["verdict"]) == (None, verdict)


def test_a_row_says_who_failed_and_why_nothing_is_measured() -> None:
    row = Row("call", Samples({}, {"jitserver": "died"}), (Target(1.0, not_yet="needs a disk"),)).result()
    assert row["failed"] == {"jitserver": "died"}
    assert row["note"] == "needs a disk"
    assert row["costs"] == {}


def test_summaries_are_median_and_quartiles() -> None:
    assert Summary.of([5.0, 1.0, 4.0, 2.0, 3.0]) == Summary(3.0, 2.0, 4.0)
    assert Summary.of([7.0]) == Summary(7.0, 7.0, 7.0)


@pytest.mark.parametrize(("percent", "value"), [(99, 99), (100, 100), (50, 50), (0, 1)])
def test_percentiles(percent: float, value: float) -> None:
    assert percentile([float(number) for number in range(100, 0, -1)], percent) == value


def test_quick_means_tiny() -> None:
    quick, full = Effort(quick=True), Effort()
    assert quick.rounds(20) < full.rounds(20) == 20
    assert quick.seconds(1.0) < full.seconds(1.0) == 1.0
    assert quick.sizes(1, 2, 3) == (1, 2) != full.sizes(1, 2, 3)
    assert math.isclose(quick.one(9, 1), 1)
