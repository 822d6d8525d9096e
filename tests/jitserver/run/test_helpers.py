"""A helper runs only as long as it is worth its memory."""

from pathlib import Path

import pytest

from jitserver.run import helpers

HOUR, MINUTE = 3600.0, 60.0


@pytest.mark.core
def test_a_helper_without_a_daemon_waits_less_long_for_a_run() -> None:
    assert helpers.is_worth_its_memory(HOUR, has_daemon=True)
    assert not helpers.is_worth_its_memory(HOUR, has_daemon=False)
    assert helpers.is_worth_its_memory(MINUTE, has_daemon=False)
    assert not helpers.is_worth_its_memory(24 * HOUR, has_daemon=True)


@pytest.mark.core
def test_there_is_none_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "meminfo"
    monkeypatch.setattr(helpers, "_MEMORY", str(memory))
    for text, is_short in (
        ("MemTotal: 8000000 kB\nMemAvailable: 900000 kB\n", True),
        ("MemTotal: 8000000 kB\nMemAvailable: 2000000 kB\n", False),
        ("an unknown format", False),
    ):
        memory.write_text(text)
        assert helpers.is_memory_short() == is_short
        assert helpers.is_worth_its_memory(MINUTE, has_daemon=True) != is_short


@pytest.mark.core
def test_only_helpers_that_run_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "runtime_directory", lambda: tmp_path)
    (tmp_path / "run-abc.lock").write_text("1\n0\n")
    assert helpers.running() == []
