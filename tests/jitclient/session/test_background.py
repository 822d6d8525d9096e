"""Work in the background: called again while there is some, and not lost where its thread is about to end."""

from collections.abc import Callable
from typing import Any

from jitclient.session.background import Background


def test_it_works_as_long_as_there_is_something_to_do(until: Callable[..., Any]) -> None:
    answers = [True, True, False, False]  # once more after the thread has said that it ends
    calls: list[int] = []

    def work() -> tuple[bool, float]:
        calls.append(1)
        return answers.pop(0), 0.0

    background = Background(work)
    background.wake()
    until(lambda: len(calls) == 4, "four calls")
    until(lambda: not background.awake, "the thread to end")
    answers += [False, False]
    background.wake()
    until(lambda: len(calls) == 6, "two more")


def test_what_came_at_its_end_is_done(until: Callable[..., Any]) -> None:
    answers = [False, True, True, False, False]
    background = Background(lambda: (answers.pop(0), 0.0))
    background.wake()
    until(lambda: not answers, "all of it done")


def test_it_ends_only_after_a_quiet_while(until: Callable[..., Any]) -> None:
    answers = [False, False, True, False, False, False, False]
    background = Background(lambda: (answers.pop(0), 0.0), quiet=3)
    background.wake()
    until(lambda: not answers and not background.awake, "all of it done")


def test_before_a_fork_there_is_no_thread() -> None:
    background = Background(lambda: (True, 0.0))
    background.wake()
    background.rest()
    assert not background.awake
