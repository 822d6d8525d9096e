"""Which failures are followed by another attempt."""

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
from jitclient.session.retry import ATTEMPTS, RetryPolicy


class Stay:
    left = 0

    def disconnect(self) -> None:
        self.left += 1


@pytest.mark.parametrize("kind", [NotSent, DaemonDraining])
def test_what_nobody_began_is_done_again_a_few_times(kind: type[DaemonError]) -> None:
    stay = Stay()
    policy = RetryPolicy(stay.disconnect)
    assert [policy.retries(kind("")) for _ in range(ATTEMPTS)] == [True] * (ATTEMPTS - 1) + [False]
    assert stay.left == (ATTEMPTS - 1 if kind is DaemonDraining else 0)


@pytest.mark.parametrize("kind", [DaemonLost, DaemonSilent])
@pytest.mark.parametrize("repeats", range(3))
def test_what_may_have_been_done_is_repeated_as_often_as_is_said(repeats: int, kind: type[DaemonError]) -> None:
    policy = RetryPolicy(Stay().disconnect, repeats)
    assert [policy.retries(kind("")) for _ in range(4)] == [True] * repeats + [False] * (4 - repeats)


def test_what_changes_something_is_not_repeated() -> None:
    policy = RetryPolicy(Stay().disconnect, repeats=3)
    once = DaemonLost("")
    once.may_repeat = False
    assert policy.retries(NotSent(""))
    assert not policy.retries(once)
    assert policy.retries(DaemonLost(""))


@pytest.mark.parametrize("kind", [DaemonUnavailable, Incompatible, ArrayLost, ValueError])
def test_where_another_attempt_would_not_help_there_is_none(kind: type[Exception]) -> None:
    assert not RetryPolicy(Stay().disconnect, repeats=3).retries(kind(""))
