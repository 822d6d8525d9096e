"""Limited waits, by a clock that only they move."""

import pytest

from jitclient.core import polling


@pytest.mark.parametrize(("seconds", "pauses"), [(-1.0, 0), (0.0, 0), (0.25, 1), (1.0, 2), (1.25, 3)])
def test_an_attempt_follows_the_end_of_the_time(monkeypatch: pytest.MonkeyPatch, seconds: float, pauses: int) -> None:
    now = 100.0

    def sleep(pause: float) -> None:
        nonlocal now
        now += pause

    monkeypatch.setattr(polling, "monotonic", lambda: now)
    monkeypatch.setattr(polling, "sleep", sleep)
    limited = polling.Polling(seconds, 0.5)
    assert [limited.pause() for _ in range(pauses + 1)] == [True] * pauses + [False]
    assert now == 100 + 0.5 * pauses
