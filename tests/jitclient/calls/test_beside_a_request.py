"""While the daemon traces a function, its caller does, and what it calls on the daemon goes over another connection."""

from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.session import process

pytestmark = pytest.mark.usefixtures("daemon")

X = np.arange(3, dtype=np.float32)


def test_what_queued_calls_use_outlives_a_trace_that_calls_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    @jitclient.jit
    def double(x: Any) -> Any:
        return x * 2

    def shifted(x: Any) -> Any:
        return x + np.asarray(jitclient.device_put(X)).sum()

    np.asarray(double(X))
    background = process.session().background
    monkeypatch.setattr(background, "wake", lambda: None)  # it would send them
    background.rest()
    x = jitclient.device_put(X)
    results = [double(x) for _ in range(5)]  # the last ones are in the queue
    del x
    assert np.asarray(jitclient.jit(shifted)(X)).tolist() == [3, 4, 5]
    assert [np.asarray(result).tolist() for result in results] == [[0, 2, 4]] * 5


def test_a_session_whose_trace_failed_is_connected_and_keeps_its_arrays() -> None:
    def fails(x: Any) -> Any:
        raise ValueError("of the user")

    session, x = process.session(), jitclient.device_put(X)
    generation = session.generation
    with pytest.raises(ValueError, match="of the user"):
        jitclient.jit(fails)(x)
    assert session.connection is not None, "a session without one says no goodbye, and the daemon keeps its arrays"
    assert session.generation == generation
    assert np.asarray(x).tolist() == X.tolist()
