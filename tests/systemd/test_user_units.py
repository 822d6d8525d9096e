from typing import Any

import pytest

SCRIPT = "user_units.py"


@pytest.mark.slow
@pytest.mark.systemd
def test_user_units(check: str, outcome: dict[str, Any]) -> None:
    assert outcome["ok"], outcome["detail"]
