"""`jitserver warm` without what it needs."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from jitclient.session import launch

Here = Callable[..., Result]


def test_an_error_as_json(here: Here) -> None:
    done = here("warm", "--json", "missing.py")
    assert done.exit_code == 2
    assert json.loads(done.output)["type"] == "UsageError"


def test_no_daemon_that_may_not_be_started(
    here: Here, tmp_path: Path, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # others warm programs of that name
    script = tmp_path / "train.py"
    script.write_text("")
    done = here("--address", f"unix:{short_path}/d.sock", "warm", str(script))
    assert done.exit_code == 3
    assert not list(launch.log_directory().glob("*-warm-train-*"))


def test_a_notebook_without_the_packages_for_it(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def found(name: str, package: str | None = None) -> Any:
        return None if name in ("nbclient", "ipykernel") else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", found)
    (tmp_path / "a.ipynb").write_text("{}")
    done = here("warm", "--json", str(tmp_path / "a.ipynb"))
    assert done.exit_code == 1
    error = json.loads(done.output)
    assert error["type"] == "MissingPackage"
    assert error["error"].endswith("Run `pip install nbclient ipykernel`.")
