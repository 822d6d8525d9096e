"""The schedule alone, without workers: order, batches, and the fate of calls whose worker is lost."""

from collections.abc import Sequence
from typing import Any

import pytest

from jitclient.errors import HostUnreachable, WorkerLost
from jitclient.pools.schedule import MAX_FAILED_STARTS, Batch, Job, Result, Schedule


class Record:
    def __init__(self) -> None:
        self.results: dict[int, Any] = {}
        self.cancelled: set[int] = set()

    def start(self, index: int) -> bool:
        return index not in self.cancelled

    def finish(self, results: Sequence[Result]) -> None:
        for index, value, error in results:
            assert index not in self.results
            self.results[index] = value if error is None else error

    def cancel(self, index: int) -> None:
        self.cancelled.add(index)


def schedule_of(*hosts: str, retries: int = 2) -> Schedule:
    made = Schedule(hosts, retries)
    for number in range(len(hosts)):
        made.started(number)
    return made


def added(schedule: Schedule, count: int, **options: Any) -> Job:
    job = Job("f", b"f", Record(), **options)
    schedule.add(job, {number: (number,) for number in range(count)})
    return job


def taken(schedule: Schedule, worker: int = 0) -> Batch:
    batch = schedule.take(worker, 0)
    assert batch is not None
    return batch


def lose(schedule: Schedule, batch: Batch, worker: int = 0) -> None:
    for failed in schedule.lose(batch, worker, "signal 9"):
        failed.deliver()
    schedule.end(batch)


def test_calls_run_one_by_one_and_in_order_until_their_cost_is_known() -> None:
    schedule = schedule_of("a")
    added(schedule, 3)
    assert [list(taken(schedule).indices) for _ in range(3)] == [[0], [1], [2]]
    assert schedule.take(0, 0) is None


def test_short_calls_are_sent_together_but_not_all_to_one_worker() -> None:
    schedule = schedule_of("a", "b")
    added(schedule, 1001)
    first = taken(schedule)
    schedule.finish(first, 1, seconds=1e-3)
    sizes = []
    while (batch := schedule.take(0, 0)) is not None:
        sizes.append(len(batch.indices))
    assert sum(sizes) == 1000
    assert sizes[0] == 100
    assert sizes[-1] <= 3


def test_tiny_calls_are_not_cut_into_batches_that_cost_more_than_they_take() -> None:
    schedule = schedule_of("a", "b")
    added(schedule, 1001)
    schedule.finish(taken(schedule), 1, seconds=1e-5)
    sizes = [len(taken(schedule).indices) for _ in range(3)]
    assert sizes == [300, 300, 300]


def test_long_calls_are_sent_alone() -> None:
    schedule = schedule_of("a")
    added(schedule, 100)
    schedule.finish(taken(schedule), 1, seconds=3.0)
    assert len(taken(schedule).indices) == 1


def test_a_chunk_has_the_size_that_the_user_chose() -> None:
    schedule = schedule_of("a")
    added(schedule, 7, chunk=3)
    assert [len(taken(schedule).indices) for _ in range(3)] == [3, 3, 1]


def test_a_cancelled_call_is_left_out() -> None:
    schedule = schedule_of("a")
    job = added(schedule, 3)
    job.sink.cancel(1)
    assert [list(taken(schedule).indices) for _ in range(2)] == [[0], [2]]


def test_calls_of_a_lost_batch_run_again_alone_and_before_others() -> None:
    schedule = schedule_of("a", "b")
    added(schedule, 6, chunk=4)
    batch = taken(schedule)
    assert schedule.finish(batch, 1, 1.0) == [0]
    lose(schedule, batch)
    assert [list(taken(schedule, 1).indices) for _ in range(4)] == [[1], [2], [3], [4, 5]]


def test_a_call_that_was_alone_runs_elsewhere_while_there_is_another_host() -> None:
    schedule = schedule_of("a", "a", "b")
    added(schedule, 1)
    lose(schedule, taken(schedule))
    assert schedule.take(0, 0) is None
    assert schedule.take(1, 0) is None
    assert list(taken(schedule, 2).indices) == [0]


def test_a_call_runs_again_on_its_host_if_that_is_the_only_one() -> None:
    schedule = schedule_of("a", "b")
    added(schedule, 1)
    lose(schedule, taken(schedule))
    schedule.stopped(1)
    assert list(taken(schedule).indices) == [0]


@pytest.mark.parametrize("retries", [0, 2])
def test_a_poisoned_call_fails_alone_with_its_name(retries: int) -> None:
    schedule = schedule_of("a", retries=retries)
    job = added(schedule, 3, chunk=3)
    # The first loss does not say which of the three it was.
    lose(schedule, taken(schedule))
    for _ in range(retries + 1):
        batch = taken(schedule)
        while finish_unless(schedule, batch, 1):
            batch = taken(schedule)
        lose(schedule, batch)
    while (batch := schedule.take(0, 0)) is not None:
        finish_unless(schedule, batch, 1)
    results = job.sink.results  # type: ignore[attr-defined]
    assert (results[0], results[2]) == ("done", "done")
    assert isinstance(results[1], WorkerLost)
    assert str(results[1]).startswith("f(1): its worker died ")
    assert "signal 9" in str(results[1])


def finish_unless(schedule: Schedule, batch: Batch, poisoned: int) -> bool:
    """Finishes a batch of one call, and returns whether it did: not the poisoned one."""
    if list(batch.indices) == [poisoned]:
        return False
    batch.job.sink.finish([(index, "done", None) for index in schedule.finish(batch, 1, 1.0)])
    schedule.end(batch)
    return True


def test_calls_that_a_worker_gives_back_keep_their_place() -> None:
    schedule = schedule_of("a")
    job = added(schedule, 5, chunk=4)
    batch = taken(schedule)
    schedule.give_back(job, [batch.indices.pop() for _ in range(3)][::-1])
    job.chunk = 1
    assert [list(taken(schedule).indices) for _ in range(4)] == [[1], [2], [3], [4]]


def test_calls_fail_only_when_no_worker_can_be_started_again_and_again() -> None:
    schedule = Schedule(["a", "b"], 2)
    job = added(schedule, 2)
    error = HostUnreachable("no route")
    failed = []
    for _ in range(MAX_FAILED_STARTS):
        failed += schedule.not_started(0, error, is_final=False)
    assert not failed
    failed += schedule.not_started(1, error, is_final=True)
    for each in failed:
        each.deliver()
    results = job.sink.results  # type: ignore[attr-defined]
    assert "no route" in str(results[0])
    assert results[1].__cause__ is error


def test_calls_wait_for_a_host_that_is_back_in_time() -> None:
    schedule = Schedule(["a"], 2)
    added(schedule, 1)
    for _ in range(2):
        for _ in range(MAX_FAILED_STARTS - 1):
            assert not schedule.not_started(0, HostUnreachable("no route"), is_final=False)
        schedule.started(0)
        schedule.stopped(0)
    schedule.started(0)
    assert list(taken(schedule).indices) == [0]


def test_a_closed_schedule_is_over_when_all_that_runs_has_ended() -> None:
    schedule = schedule_of("a")
    job = added(schedule, 2)
    batch = taken(schedule)
    assert schedule.close(cancel=True) == [(job, 1)]
    assert not schedule.is_over()
    schedule.end(batch)
    assert schedule.is_over()
    with pytest.raises(RuntimeError, match="after shutdown"):
        added(schedule, 1)
