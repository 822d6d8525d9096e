"""`jitserver watch` without what it needs."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result


def test_watch_without_watchfiles(here: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    script = tmp_path / "train.py"
    script.write_text("")
    done = here("watch", str(script))
    assert done.exit_code == 1
    assert "pip install 'jitserver[watch]'" in done.output
