"""A single maker per key, and all who wait get its program."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from jitserver.store.single_flight import SingleFlight


def test_eight_ask_and_one_makes() -> None:
    known: dict[str, object] = {}
    once: SingleFlight[object] = SingleFlight(known.get)
    made, all_waiting = [], threading.Barrier(9)
    begun = threading.Event()

    def make() -> object:
        begun.set()
        all_waiting.wait(60)  # the other seven are on their way in, and so is the test
        made.append(object())
        known["k"] = made[-1]
        return made[-1]

    def ask(number: int) -> tuple[object, bool]:
        if number:
            begun.wait(60)
            all_waiting.wait(60)
        return once.get("k", make)

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, number) for number in range(8)]
        begun.wait(60)
        all_waiting.wait(60)
        answers = [future.result(60) for future in asked]
    assert len(made) == 1
    assert {id(found) for found, _ in answers} == {id(made[0])}
    assert sum(first for _, first in answers) == 1


def test_what_the_maker_raises_is_raised_and_the_next_one_tries_again() -> None:
    once: SingleFlight[int] = SingleFlight({}.get)

    def fail() -> int:
        raise KeyError("no")

    with pytest.raises(KeyError):
        once.get("k", fail)
    assert once.get("k", lambda: 3) == (3, True)


def test_what_is_known_is_not_made() -> None:
    once: SingleFlight[int] = SingleFlight({"k": 5}.get)
    assert once.get("k", lambda: 1 // 0) == (5, False)
