"""Which kernels of Jupyter run under jitclient, by the specs that Jupyter then finds."""

import json
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitclient.api import kernels

LAUNCHES = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
UNDER = ["-m", "jitclient", "--package", "brax", *LAUNCHES]

Add = Callable[[str, str, list[str]], None]


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Add:
    """Adds the spec of a kernel in a folder where Jupyter looks, "first" or "second"."""
    monkeypatch.setenv("JITSERVER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JUPYTER_PATH", "/others")
    folders = [str(tmp_path / name) for name in ("first", "second")]
    monkeypatch.setitem(
        sys.modules,
        "jupyter_core.paths",
        types.SimpleNamespace(jupyter_path=lambda part: folders),  # type: ignore[arg-type]
    )

    def added(folder: str, name: str, argv: list[str]) -> None:
        path = tmp_path / folder / name
        path.mkdir(parents=True)
        (path / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": f"{folder} {name}"}))
        (path / "logo.png").write_text("drawn")

    return added


def in_front() -> dict[str, Any]:
    """The specs in the folder that Jupyter then finds first, by name."""
    folder, *others = os.environ["JUPYTER_PATH"].split(os.pathsep)
    if not others:
        return {}
    assert others == ["/others"]
    assert all((path.parent / "logo.png").read_text() == "drawn" for path in Path(folder).glob("kernels/*/*.json"))
    return {path.parent.name: json.loads(path.read_bytes()) for path in Path(folder).glob("kernels/*/kernel.json")}


def test_the_kernels_of_this_environment_run_under_jitclient(add: Add) -> None:
    add("first", "python3", ["python", *LAUNCHES])
    add("first", "frozen", [sys.executable, "-Xfrozen_modules=off", *LAUNCHES])
    add("second", "python3", ["python3", *LAUNCHES])
    kernels.run_under_jitclient(["brax"])
    assert in_front() == {
        "python3": {"argv": ["python", *UNDER], "display_name": "first python3"},
        "frozen": {"argv": [sys.executable, "-Xfrozen_modules=off", *UNDER], "display_name": "first frozen"},
    }


def test_other_kernels_stay_as_they_are(add: Add) -> None:
    add("first", "other_environment", ["/other/bin/python", *LAUNCHES])
    add("first", "other_language", ["R", "--slave", "-e", "IRkernel::main()"])
    add("first", "ours", ["python", *UNDER])
    add("second", "ours", ["python", *LAUNCHES])
    kernels.run_under_jitclient([])
    assert in_front() == {}


def test_each_program_finds_kernels_with_its_own_options(add: Add) -> None:
    add("first", "python3", ["python", *LAUNCHES])
    found = []
    for packages in (["brax"], ["brax"], []):
        os.environ["JUPYTER_PATH"] = "/others"
        kernels.run_under_jitclient(packages)
        found.append(os.environ["JUPYTER_PATH"])
    assert found[0] == found[1] != found[2]
    assert in_front()["python3"]["argv"] == ["python", "-m", "jitclient", *LAUNCHES]


def test_what_cannot_be_prepared_is_said_and_the_program_continues(
    add: Add, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add("first", "python3", ["python", *LAUNCHES])
    (tmp_path / "first" / "python3" / "kernel.json").write_text("{")
    kernels.run_under_jitclient([])
    assert in_front() == {}
    assert "jitserver: notebooks run without the daemon" in capsys.readouterr().err
