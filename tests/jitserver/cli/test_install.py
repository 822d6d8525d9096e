"""`jitserver install --dry-run` prints the units wherever it runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from jitclient.core.settings import settings


def test_without_systemd_the_units_are_printed_with_the_reason(
    here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JITSERVER_ADDRESS")
    settings.cache_clear()
    done = here("install", "--dry-run", "--json")
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)
    assert "not booted with systemd" in planned["hindrance"]
    assert sorted(path.rpartition(".")[2] for path in planned["units"]) == ["service", "socket"]
    assert all("[Unit]" in text for text in planned["units"].values())
    text = here("install", "--dry-run")
    assert text.exit_code == 0
    assert all(path in text.stdout for path in planned["units"])
    assert "they cannot be installed here: this machine was not booted with systemd" in text.stderr
    refused = here("install")
    assert refused.exit_code == 1
    assert "not booted with systemd" in refused.output
