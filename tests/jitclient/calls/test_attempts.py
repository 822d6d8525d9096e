"""How often a call is tried again, and what is raised in the end."""

from typing import Any

import pytest

from jitclient.calls import copies
from jitclient.calls.attempts import attempted
from jitclient.errors import ArrayBudgetExceeded, DaemonLost, NotSent, ProgramLost


class Stay:
    """A session whose daemon ends each attempt with the next of these."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.forgot = 0

    def disconnect(self) -> None:
        raise AssertionError

    def forget_programs(self) -> None:
        self.forgot += 1

    def answer(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def call(stay: Any, lost: DaemonLost | None = None) -> Any:
    return attempted(stay, stay.answer, lost)


def test_a_lost_program_is_prepared_again() -> None:
    stay: Any = Stay(ProgramLost("gone"), 5)
    assert call(stay) == 5
    assert stay.forgot == 1


def test_where_that_does_not_help_it_says_what_is_lost() -> None:
    stay: Any = Stay(ProgramLost("gone"), ProgramLost("the argument's"), 5)
    with pytest.raises(ProgramLost, match="the argument's"):
        call(stay)
    assert stay.forgot == 1


def test_a_call_that_changes_nothing_is_made_once_more() -> None:
    stay: Any = Stay(DaemonLost("first"), NotSent("second"), 5)
    assert call(stay) == 5
    stay = Stay(DaemonLost("first"), DaemonLost("second"), 5)
    with pytest.raises(DaemonLost, match="second"):
        call(stay)
    stay = Stay(DaemonLost("second"), 5)  # a plan has tried it before
    with pytest.raises(DaemonLost, match="second"):
        call(stay, DaemonLost("first"))


def test_a_call_that_changes_something_is_not() -> None:
    lost = DaemonLost("first")
    lost.may_repeat = False
    stay: Any = Stay(lost, 5)
    with pytest.raises(DaemonLost, match="first"):
        call(stay)


def test_where_there_is_no_room_copies_make_some(monkeypatch: pytest.MonkeyPatch) -> None:
    held = [True]
    monkeypatch.setattr(copies, "free_all", lambda: bool(held) and held.pop())
    stay: Any = Stay(ArrayBudgetExceeded("first"), 5)
    assert call(stay) == 5
    stay = Stay(ArrayBudgetExceeded("first"), 5)
    with pytest.raises(ArrayBudgetExceeded, match="first"):
        call(stay)
