from typing import Any

import pytest

SCRIPT = "system_template.py"


@pytest.mark.slow
@pytest.mark.systemd
def test_system_template(check: str, outcome: dict[str, Any]) -> None:
    assert outcome["ok"], outcome["detail"]
