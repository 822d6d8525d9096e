"""How traces take turns."""

import pytest

from jitclient.errors import CaptureError
from jitserver.engine import program


def test_a_trace_that_would_wait_long_is_left_to_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_PATIENCE_SECONDS", 0.0)
    with program._alone(), pytest.raises(CaptureError, match="busy with a long trace"), program._alone():
        raise AssertionError("two at once")
    with program._alone():
        pass
