"""Type checkers read signatures as people do: mypy and pyright, on a sample program."""

import inspect
import json
import re
import subprocess
import sys
import sysconfig
import typing
from importlib import resources
from pathlib import Path

import jax
import pytest

import jitclient
from jitclient.calls.decorator import jit

SAMPLE = Path(__file__).with_name("typed_program.py")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The sample, with a line for each public name, which is wrong unless that has a type."""
    names = "\n".join(f"assert_type(jitclient.{name}, Any)  # wrong" for name in jitclient.__all__)
    path = tmp_path / "program.py"
    path.write_text(f"{SAMPLE.read_text()}\n\n{names}\n")
    return path


def assert_found(program: Path, found: dict[int, str]) -> None:
    lines = program.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    missed = [lines[number - 1] for number in sorted(marked - found.keys())]
    assert (missed, {lines[number - 1]: text for number, text in found.items() if number not in marked}) == ([], {})


@pytest.mark.slow
def test_mypy_reads_it(program: Path, pytestconfig: pytest.Config) -> None:
    cache = pytestconfig.cache.mkdir("mypy")  # most of the time goes to jax, whose types stay as they are
    options = ["--strict", "--untyped-calls-exclude=jax", "--config-file=", f"--cache-dir={cache}"]
    command = [sys.executable, "-m", "mypy", *options, program.name]
    said = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    errors = re.findall(r"^program\.py:(\d+): error: (.*)", said.stdout, re.MULTILINE)
    assert errors, said
    assert_found(program, {int(number): text for number, text in errors})


@pytest.mark.slow
def test_pyright_reads_it(program: Path) -> None:
    # basedpyright is pyright in a package that brings its own node; told to check what pyright does.
    program.with_name("pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    pyright = Path(sysconfig.get_path("scripts"), "basedpyright")
    command = [pyright, "--outputjson", "--pythonpath", sys.executable]
    said = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=False)
    found = json.loads(said.stdout)["generalDiagnostics"]
    errors = [entry for entry in found if entry["severity"] == "error"]
    assert_found(program, {entry["range"]["start"]["line"] + 1: entry["message"] for entry in errors})


@pytest.mark.parametrize("package", ["jitclient", "jitserver"])
def test_what_is_installed_says_that_it_has_types(package: str) -> None:
    assert resources.files(package).joinpath("py.typed").is_file()


def test_every_keyword_of_jax_is_spelled_out() -> None:
    ours, theirs = inspect.signature(jit), inspect.signature(jax.jit)
    assert set(theirs.parameters) <= set(ours.parameters)
    assert not any(one.kind is one.VAR_KEYWORD for one in ours.parameters.values())
    for name in ours.parameters:
        assert re.search(rf"^        {name}: ", inspect.getdoc(jit).replace("\n", "\n    "), re.MULTILINE), name


def test_the_overloads_have_the_keywords_of_the_function() -> None:
    def keywords(function: typing.Any) -> dict[str, typing.Any]:
        found = inspect.signature(function).parameters.values()
        return {one.name: one.annotation for one in found if one.kind is one.KEYWORD_ONLY}

    overloads = typing.get_overloads(jit)
    assert [keywords(overload) for overload in overloads] == [keywords(jit)] * 2
