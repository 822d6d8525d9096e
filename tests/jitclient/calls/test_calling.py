"""How often a call is tried again, and what is raised in the end."""

from typing import Any

import pytest

from jitclient.calls import calling
from jitclient.errors import ProgramLost


class Stay:
    """A session at a daemon that answers each call with the next of these."""

    address = "unix:/nowhere"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.made_anew = 0

    def prepare_anew(self) -> None:
        self.made_anew += 1

    def program_at(self, stay: Any) -> Any:
        return self

    def call(self, leaves: Any) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_lost_program_is_made_anew() -> None:
    stay: Any = Stay(ProgramLost("gone"), 5)
    assert calling.call(stay, stay.program_at, []) == 5
    assert stay.made_anew == 1


def test_where_that_does_not_help_it_says_what_is_lost() -> None:
    stay: Any = Stay(ProgramLost("gone"), ProgramLost("the argument's"), 5)
    with pytest.raises(ProgramLost, match="the argument's"):
        calling.call(stay, stay.program_at, [])
    assert stay.made_anew == 1
