"""Which failures are followed by another attempt."""

from typing import Any

import pytest

from jitclient.errors import (
    ArrayLost,
    DaemonDraining,
    DaemonError,
    DaemonLost,
    DaemonSilent,
    DaemonUnavailable,
    Incompatible,
    NotSent,
)
from jitclient.session.retry import ATTEMPTS, with_retries


class Stay:
    """A link to a daemon that ends each attempt with the next of these."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.made = self.left = 0

    def disconnect(self) -> None:
        self.left += 1

    def answer(self) -> str:
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def ask(stay: Any, repeats: int = 0) -> str:
    return with_retries(stay, stay.answer, repeats)


@pytest.mark.parametrize("kind", [NotSent, DaemonDraining])
def test_what_nobody_began_is_done_again_a_few_times(kind: type[DaemonError]) -> None:
    stay = Stay(*[kind("") for _ in range(ATTEMPTS - 1)])
    assert ask(stay) == "done"
    stay = Stay(*[kind("") for _ in range(ATTEMPTS)])
    with pytest.raises(kind):
        ask(stay)
    assert stay.made == ATTEMPTS
    assert stay.left == (ATTEMPTS - 1 if kind is DaemonDraining else 0)


@pytest.mark.parametrize("kind", [DaemonLost, DaemonSilent])
@pytest.mark.parametrize("repeats", range(3))
def test_what_may_have_been_done_is_repeated_as_often_as_is_said(repeats: int, kind: type[DaemonError]) -> None:
    assert ask(Stay(*[kind("") for _ in range(repeats)]), repeats) == "done"
    stay = Stay(*[kind("") for _ in range(4)])
    with pytest.raises(kind):
        ask(stay, repeats)
    assert stay.made == repeats + 1


def test_what_changes_something_is_not_repeated() -> None:
    once = DaemonLost("once")
    once.may_repeat = False
    with pytest.raises(DaemonLost, match="once"):
        ask(Stay(NotSent(""), DaemonLost(""), once), repeats=3)


@pytest.mark.parametrize("kind", [DaemonUnavailable, Incompatible, ArrayLost, ValueError])
def test_where_another_attempt_would_not_help_there_is_none(kind: type[Exception]) -> None:
    stay = Stay(kind(""))
    with pytest.raises(kind):
        ask(stay, repeats=3)
    assert stay.made == 1


def test_an_error_whose_cause_is_gone_counts_for_nothing() -> None:
    stay: Any = Stay(*[ArrayLost("") for _ in range(2 * ATTEMPTS)])
    assert with_retries(stay, stay.answer, is_cured=lambda error: isinstance(error, ArrayLost)) == "done"
