from typing import Any

import pytest

SCRIPT = "restarts.py"


@pytest.mark.slow
@pytest.mark.systemd
def test_restarts(check: str, outcome: dict[str, Any]) -> None:
    assert outcome["ok"], outcome["detail"]
