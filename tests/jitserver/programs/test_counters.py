"""Counting from many threads loses nothing."""

import dataclasses
import os
import threading
from collections.abc import Callable
from typing import Any

from jitserver.programs.counters import Counters

THREADS, ROUNDS = 8, 50


class Slow(int):
    """A number that lets other threads run during an addition."""

    def __add__(self, other: int) -> "Slow":
        together = Slow(int(self) + other)
        os.sched_yield()
        return together


@dataclasses.dataclass
class Counted:
    calls: int = dataclasses.field(default_factory=Slow)
    call_seconds: float = dataclasses.field(default_factory=Slow)
    slowest: float = 0.0
    queue_seconds: float = 3.0
    queued_seconds: float = dataclasses.field(default_factory=Slow)


def at_once(action: Callable[[], Any]) -> None:
    together = threading.Barrier(THREADS)

    def act() -> None:
        together.wait()
        for _ in range(ROUNDS):
            action()

    threads = [threading.Thread(target=act) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_no_call_of_a_run_is_lost() -> None:
    counters, session, programs = Counters(), Counted(), [Counted(), Counted()]
    at_once(lambda: counters.add_run(session, [(programs[0], 1), (programs[1], 2), (programs[0], 1)]))
    runs = THREADS * ROUNDS
    assert (session.calls, session.call_seconds) == (3 * runs, 4 * runs)
    assert [(program.calls, program.call_seconds, program.queued_seconds) for program in programs] == [
        (2 * runs, 2 * runs, 6 * runs),
        (runs, 2 * runs, 3 * runs),
    ]


def test_the_slowest_call_counts_but_for_the_first() -> None:
    counters, program = Counters(), Counted()
    counters.add_run(Counted(), [(program, 9)])
    assert program.slowest == 0
    counters.add_run(Counted(), [(program, 1), (program, 3)])
    counters.add_run(Counted(), [(program, 2)])
    assert program.slowest == 3


def test_no_amount_is_lost() -> None:
    counters = Counters(hits=Slow())
    at_once(lambda: counters.add(hits=1))
    assert counters.hits == THREADS * ROUNDS
