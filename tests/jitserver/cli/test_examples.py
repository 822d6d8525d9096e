"""`jitserver demo` lists and runs the examples."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import jitserver
from jitserver.cli import examples, main

TOP = Path(__file__).parents[3]


def demo(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["demo", *arguments])


def test_the_list_says_what_each_is_about() -> None:
    listed = json.loads(demo("--list", "--json").stdout)
    assert {one["name"] for one in listed} == {path.stem for path in (TOP / "examples").glob("*.py")}
    assert all(one["about"] for one in listed)
    assert all(one["name"] in demo("--list").stdout for one in listed)


def test_what_is_missing_ends_with_one_line_that_pip_understands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "PACKAGED", tmp_path)
    monkeypatch.setattr(examples, "_PIP_NAMES", {"other_that_is_missing": "dm-other"})
    source = "import json\nimport jax\nimport missing.part\nfrom other_that_is_missing.part import a\n"
    (tmp_path / "needy.py").write_text(f'"""Needs much.too. And more."""\n{source}')
    [listed] = json.loads(demo("--list", "--json").stdout)
    assert listed == {"name": "needy", "about": "Needs much.too", "missing": ["missing", "dm-other"], "devices": 0}
    done = demo("needy")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "Error: the example needy needs more packages. Run `pip install missing dm-other`.\n"


def test_an_unknown_example_is_wrong_usage() -> None:
    done = demo("no_such_example")
    assert done.exit_code == 2
    assert "jitserver demo --list" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_second_run_of_an_example_makes_nothing(cli: Callable[..., Any], daemon: str) -> None:
    done = cli("demo", "training_loop", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    first, second = found["runs"]
    assert found["example"] == "training_loop"
    assert first["traces"] > 0
    assert [second[name] for name in examples.COUNTED] == [0] * len(examples.COUNTED)
    assert "final loss" in second["output"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_example_for_several_devices_brings_a_daemon_beside_one_that_has_fewer(
    cli: Callable[..., Any], daemon: str
) -> None:
    done = cli("demo", "data_parallel", "--json")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["runs"]
    assert first["traces"] > 0
    assert [second[name] for name in examples.COUNTED] == [0] * len(examples.COUNTED)
    assert all("on 8 devices" in run["output"] for run in (first, second))
    status = json.loads(cli("status", "--json").stdout)
    assert (len(status["devices"]), status["address"]) == (1, daemon)


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_an_example_among_installed_packages_may_import_the_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages" / "examples"
    folder.mkdir(parents=True)
    monkeypatch.setattr(examples, "PACKAGED", folder)
    (folder / "beside.py").write_text("def twice(x):\n    return x * 2\n")
    source = (
        "import jitclient\nfrom beside import twice\nprint(float(jitclient.jit(lambda x: twice(x) + 0.625)(1.0)))\n"
    )
    (folder / "whole.py").write_text(source)
    runs = json.loads(demo("whole", "--json").stdout)["runs"]
    assert [run["output"] for run in runs] == ["2.625\n", "2.625\n"]
    assert [(run["traces"], run["client_traces"]) for run in runs] == [(1, 0), (0, 0)]


def test_the_wheel_has_them_where_the_command_looks() -> None:
    built = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert Path(jitserver.__file__).parents[1] / built["force-include"]["examples"] == examples.PACKAGED
