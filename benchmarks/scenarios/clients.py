"""How the cost of a small call grows with the clients that make them at once, and whether all get their share."""

import functools
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.crew import Worker, crew
from benchmarks.measure import Effort, percentile
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, bare_socket, ours, tutorial
from benchmarks.scenarios.small_call import SIDE, dense
from benchmarks.worker import Once

_UNFAIR = 5.0


def timed_calls(caller: Caller, seconds: float) -> Once:
    """The seconds of each call, one after the other for so long."""
    x = np.ones((SIDE, SIDE), np.float32)
    b = np.ones(SIDE, np.float32)
    layer = caller.jit(dense)
    assert caller.look(layer(x, x, b))[0, 0] == SIDE + 1, "a wrong answer"

    def once() -> list[float]:
        clock, taken = time.perf_counter, []
        end = clock() + seconds
        while (before := clock()) < end:
            caller.look(layer(x, x, b))
            taken.append(clock() - before)
        return taken

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """From 1 to 16 clients with equal load."""
    counts = effort.sizes(1, 2, 4, 8, 16)
    seconds = effort.seconds(0.5)
    with crew((ours, bare_socket, tutorial), clients=max(counts)) as contenders:
        for name in list(contenders.workers):
            contenders.attempt(name, functools.partial(_prepare, contenders.workers[name], seconds))
        for count in counts:
            some = {name: functools.partial(_together, all_[:count]) for name, all_ in contenders.workers.items()}
            samples = contenders.take_turns(f"{count} clients", some, effort.rounds(9))
            text = f"{count} {'client' if count == 1 else 'clients'}"
            yield Row(f"{text}: seconds for each call of all", samples.of(_each), at=count)
            yield Row(f"{text}: p99 of the slowest", samples.of(lambda taken: max(_p99s(taken))), at=count)
            if count > 1:
                uneven = samples.of(lambda taken: max(_p99s(taken)) / min(_p99s(taken)))
                yield Row(f"{text}: slowest p99 to quickest", uneven, (Target(_UNFAIR),), at=count, unit="")


def _prepare(workers: list[Worker], seconds: float) -> None:
    for worker in workers:
        worker.prepare(timed_calls, seconds=seconds)


def _together(workers: list[Worker]) -> list[list[float]]:
    for worker in workers:
        worker.begin()
    return [worker.result() for worker in workers]


def _each(taken: list[list[float]]) -> float:
    """Seconds for a call when the calls of all clients are counted."""
    return max(sum(calls) for calls in taken) / sum(len(calls) for calls in taken)


def _p99s(taken: list[list[float]]) -> list[float]:
    return [percentile(calls, 99) for calls in taken]
