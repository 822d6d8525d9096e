"""Which worker runs which calls. State without I/O: the threads of the workers ask, and wait here for work.

- Calls run in the order in which they were added. Short calls of one function are sent in batches that take about
  `_BATCH_SECONDS`, and not more than half of a worker's share of what is left, so that workers finish together.
- Of a lost worker's calls, those without an outcome run again, each alone, before all others, and on another host
  if there is one. A call that was alone on its worker more than `retries` times when the worker died has failed.
- If no worker can be started on any host, several times in a row, the calls that wait have failed.
"""

import collections
import dataclasses
import itertools
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from jitclient.core.digests import digest
from jitclient.errors import WorkerLost

_BATCH_SECONDS = 0.1
# A smaller batch would cost more than it takes.
_WORTHWHILE_SECONDS = 0.003
_MIN_SECONDS = 1e-7
MAX_FAILED_STARTS = 3
"""Failed starts of a worker, in a row, after which its host counts as down."""


Result = tuple[int, Any, BaseException | None]
"""Index of a call, its value, and the exception that it raised."""


class Sink(Protocol):
    """Receiver of the outcomes of a job's calls."""

    def start(self, index: int) -> bool:
        """Return whether to run a call, which then cannot be cancelled."""
        ...

    def finish(self, results: Sequence[Result]) -> None:
        """Receive the outcomes of calls."""
        ...

    def cancel(self, index: int) -> None:
        """Receive the news that a call will not run."""
        ...


class Job:
    """Calls of one function.

    Args:
        name: name of the function, for people.
        function: the function's pickle.
        sink: receives the outcomes.
        chunk: number of calls to send together; None: as many as take `_BATCH_SECONDS`.
        holds: objects that must live until the calls are finished.
    """

    def __init__(self, name: str, function: bytes, sink: Sink, chunk: int | None = None, holds: Any = None) -> None:
        self.name, self.function, self.sink, self.chunk, self.holds = name, function, sink, chunk, holds
        self.digest = digest(function)
        self.calls: dict[int, Any] = {}
        self.seconds: float | None = None

    def note_duration(self, count: int, seconds: float) -> None:
        """Take into account that so many calls took so long."""
        mean = seconds / count
        self.seconds = mean if self.seconds is None else (self.seconds + mean) / 2


@dataclasses.dataclass
class Batch:
    """Calls that a worker runs, in this order. Those with an outcome are removed."""

    job: Job
    indices: "collections.deque[int]"


@dataclasses.dataclass
class _Again:
    """Call whose worker was lost. `hosts` are those on which it was alone."""

    job: Job
    index: int
    losses: int = 0
    hosts: set[str] = dataclasses.field(default_factory=set)


class Failed(NamedTuple):
    """Failure to deliver, once the lock is released."""

    job: Job
    number: int
    error: BaseException

    def deliver(self) -> None:
        """Deliver the failure to the sink of the job."""
        self.job.sink.finish([(self.number, None, self.error)])


class Schedule:
    """Calls that wait, and the workers that run them.

    Args:
        hosts: name of the host of each worker.
        retries: how often a call runs again whose worker died while it ran alone.
    """

    def __init__(self, hosts: Sequence[str], retries: int) -> None:
        self._hosts, self._retries = hosts, retries
        self._changed = threading.Condition()
        self._queue: collections.deque[tuple[Job, int]] = collections.deque()
        self._again: list[_Again] = []
        self._lost: dict[tuple[int, int], _Again] = {}
        self._running = 0
        self._up: set[int] = set()
        self._failures: dict[int, list[Exception]] = {number: [] for number in range(len(hosts))}
        self.is_closed = False

    # ---- the program

    def add(self, job: Job, calls: Mapping[int, Any]) -> None:
        """Add calls of a job.

        Raises:
            RuntimeError: the pool was shut down.
        """
        with self._changed:
            if self.is_closed:
                raise RuntimeError("pool: cannot submit a task after shutdown")
            job.calls.update(calls)
            self._queue.extend(zip(itertools.repeat(job), calls))
            self._changed.notify_all()

    def close(self, cancel: bool) -> list[tuple[Job, int]]:
        """Accept no more calls; return those that waited, if they are cancelled."""
        with self._changed:
            self.is_closed = True
            waiting = [*((each.job, each.index) for each in self._again), *self._queue] if cancel else []
            if cancel:
                self._again.clear()
                self._queue.clear()
            self._changed.notify_all()
        return waiting

    def wait_until_started(self, workers: Iterable[int]) -> list[Exception]:
        """Wait until each of these workers was started, or its start has failed; return the failures."""
        wanted = set(workers)
        with self._changed:
            self._changed.wait_for(lambda: all(number in self._up or self._failures[number] for number in wanted))
            return [self._failures[number][-1] for number in wanted - self._up]

    # ---- a worker

    def started(self, worker: int) -> None:
        """Note that a worker runs."""
        with self._changed:
            self._up.add(worker)
            self._failures[worker].clear()
            self._changed.notify_all()

    def stopped(self, worker: int) -> None:
        """Note that a worker no longer runs."""
        with self._changed:
            self._up.discard(worker)
            self._changed.notify_all()

    def not_started(self, worker: int, error: Exception, is_final: bool) -> list[Failed]:
        """Note that a worker could not be started; return the calls that have failed with it."""
        with self._changed:
            self._failures[worker] += [error] * (MAX_FAILED_STARTS if is_final else 1)
            self._changed.notify_all()
            if self._up or any(len(found) < MAX_FAILED_STARTS for found in self._failures.values()):
                return []
            waiting = [*((each.job, each.index) for each in self._again), *self._queue]
            self._again.clear()
            self._queue.clear()
            return [self._failed(job, index, f"no host has a worker ({error})", error) for job, index in waiting]

    def pause(self, seconds: float) -> bool:
        """Wait; return False at once if the pool was closed and has no work."""
        with self._changed:
            return not self._changed.wait_for(self._is_over, seconds)

    def take(self, worker: int, seconds: float) -> Batch | None:
        """Return calls for a worker; None if there are none within `seconds`, or the worker no longer runs."""
        with self._changed:
            found: list[Batch] = []

            def look() -> bool:
                if worker in self._up and (batch := self._next(worker)) is not None:
                    found.append(batch)
                return bool(found) or worker not in self._up or self._is_over()

            self._changed.wait_for(look, seconds)
            self._running += len(found)
            return found[0] if found else None

    def wait_until_over(self) -> None:
        """Wait until the pool, which was closed, has no work."""
        with self._changed:
            self._changed.wait_for(self._is_over)

    def is_over(self) -> bool:
        """Return whether the pool was closed and has no work."""
        with self._changed:
            return self._is_over()

    def end(self, batch: Batch) -> None:
        """Note that a worker has no more of a batch."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def give_back(self, job: Job, indices: Iterable[int]) -> None:
        """Let other workers run calls that a worker has not begun."""
        with self._changed:
            self._queue.extendleft((job, index) for index in reversed(list(indices)))
            self._changed.notify_all()

    def drop(self, batch: Batch, index: int, error: BaseException) -> Failed:
        """Remove a call from a batch, because its arguments cannot be sent."""
        with self._changed:
            batch.indices.remove(index)
            del batch.job.calls[index]
            return Failed(batch.job, index, error)

    def lose(self, batch: Batch, worker: int, why: str) -> list[Failed]:
        """Run the rest of a batch again, whose worker was lost; return the calls that have failed.

        Args:
            batch: what the worker had.
            worker: the worker.
            why: how it died.
        """
        with self._changed:
            failed = []
            for index in batch.indices:
                lost = self._lost.setdefault((id(batch.job), index), _Again(batch.job, index))
                if len(batch.indices) == 1:
                    lost.losses += 1
                    lost.hosts.add(self._hosts[worker])
                if lost.losses > self._retries:
                    times = "once" if lost.losses == 1 else f"{lost.losses} times"
                    failed.append(self._failed(batch.job, index, f"its worker died {times}, the last time with {why}"))
                else:
                    self._again.append(lost)
            self._changed.notify_all()
            return failed

    def finish(self, batch: Batch, count: int, seconds: float) -> list[int]:
        """Note that the first calls of a batch have outcomes; return their indices."""
        with self._changed:
            if count:
                batch.job.note_duration(count, seconds)
            done = [batch.indices.popleft() for _ in range(count)]
            for index in done:
                del batch.job.calls[index]
                if self._lost:
                    self._lost.pop((id(batch.job), index), None)
            return done

    # ---- under the lock

    def _is_over(self) -> bool:
        return self.is_closed and not self._queue and not self._again and not self._running

    def _next(self, worker: int) -> Batch | None:
        for number, lost in enumerate(self._again):
            if self._hosts[worker] not in lost.hosts or not self._is_elsewhere(lost.hosts):
                del self._again[number]
                return Batch(lost.job, collections.deque([lost.index]))
        queue = self._queue
        while queue:
            job = queue[0][0]
            indices = collections.deque[int]()
            size, start = self._size(job), job.sink.start
            while queue and queue[0][0] is job and len(indices) < size:
                index = queue.popleft()[1]
                if start(index):
                    indices.append(index)
                else:
                    del job.calls[index]
            if indices:
                return Batch(job, indices)
        return None

    def _is_elsewhere(self, hosts: set[str]) -> bool:
        return any(self._hosts[worker] not in hosts for worker in self._up)

    def _size(self, job: Job) -> int:
        if job.chunk is not None:
            return job.chunk
        if job.seconds is None:
            return 1
        share = math.ceil(len(self._queue) / (2 * max(1, len(self._up))))
        seconds = max(job.seconds, _MIN_SECONDS)
        return max(1, int(_WORTHWHILE_SECONDS / seconds), min(share, int(_BATCH_SECONDS / seconds)))

    def _failed(self, job: Job, index: int, why: str, cause: Exception | None = None) -> Failed:
        call = job.calls.pop(index, None)
        self._lost.pop((id(job), index), None)
        described = f"{job.name}{_shown(call)}" if isinstance(call, tuple) else job.name
        error = WorkerLost(f"{described}: {why}")
        error.__cause__ = cause
        return Failed(job, index, error)


def _shown(call: tuple[Any, ...]) -> str:
    text = ", ".join(map(repr, call))
    return f"({text if len(text) <= 80 else text[:79] + '…'})"
