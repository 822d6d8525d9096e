"""JAX's own cache on the disk."""

import os
from pathlib import Path

import jax
import pytest

from jitserver.programs import xla_cache


def test_a_folder_that_xla_cannot_name_is_not_used(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(jax.config, "update", lambda *setting: told.append(setting))
    xla_cache.use_directory(short_path / os.fsdecode(b"\xff"))
    assert told == []
