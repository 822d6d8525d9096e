"""The check that no test leaves variables or a connection of its own behind."""

import os
from collections.abc import Callable

import pytest

from jitclient.core.settings import settings
from jitclient.session import process
from jitclient.session.session import Session

from .own_variables import own_variables


def leave_variables() -> None:
    os.environ.update(JITSERVER_ADDRESS="unix:/elsewhere", JITSERVER_TIMEOUT="7")
    settings.cache_clear()
    assert settings().address == "unix:/elsewhere"


def leave_settings() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITSERVER_ADDRESS", "unix:/elsewhere")
        settings.cache_clear()
        settings()


def leave_a_connection() -> None:
    process.current = Session(settings()._replace(address="unix:/elsewhere"))


@pytest.mark.parametrize(
    ("leave", "named"),
    [
        (leave_variables, r"\['JITSERVER_ADDRESS', 'JITSERVER_TIMEOUT'\]"),
        (leave_settings, "settings of another address"),
        (leave_a_connection, "connected to unix:/elsewhere"),
    ],
)
def test_what_is_left_behind_is_named_and_taken_back(leave: Callable[[], None], named: str) -> None:
    before, session = dict(os.environ), process.current
    with pytest.raises(AssertionError, match=named), own_variables():
        leave()
    assert dict(os.environ) == before
    assert settings().address == before["JITSERVER_ADDRESS"]
    assert process.current is session


def test_variables_that_stay_are_no_matter() -> None:
    with own_variables():
        settings()
