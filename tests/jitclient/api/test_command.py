"""The options of `python -m jitclient`: whose they are, which routing they switch, and how wrong ones end."""

from pathlib import Path

import pytest

from jitclient.api import command

from .programs import Program
from .test_run_as_main import jitclient

WRONG = {
    "unknown option": ("--reprot", "program.py"),
    "no program": ("--report",),
    "no module": ("-m",),
    "abbreviation": ("--rep", "program.py"),
    "unknown suffix": ("--report=run.txt", "program.py"),
}


def run(source: str, folder: Path, *command: str) -> tuple[str, str, int]:
    program = Program(source, command=command)
    program.write(folder)
    out, err, status = program.run(folder, jitclient)
    return out.decode(), err.decode(), status


@pytest.mark.parametrize("wrong", [pytest.param(name, marks=pytest.mark.slow) for name in WRONG])
def test_a_wrong_command_line_is_one_line_and_status_2(wrong: str, tmp_path: Path) -> None:
    out, err, status = run("print('ran')", tmp_path, *WRONG[wrong])
    assert (out, status, err.count("\n")) == ("", 2, 1)
    assert err.startswith("python -m jitclient: ")


def test_a_report_never_takes_the_program_for_its_form() -> None:
    words = ["--package", "--report", "--report", "program.py", "--report"]
    assert command._with_forms(words) == ["--package", "--report", "--report=text", "program.py", "--report"]
    assert command._with_forms(["--report", "-m", "a", "--report"]) == ["--report=text", "-m", "a", "--report"]
    assert command._with_forms(["--report"]) == ["--report=text"]


@pytest.mark.slow
def test_a_variable_with_another_suffix_is_a_usage_error(tmp_path: Path) -> None:
    program = Program("print('ran')", env={"JITSERVER_REPORT": "run.txt"})
    program.write(tmp_path)
    out, err, status = program.run(tmp_path, jitclient)
    assert (out, status) == (b"", 2)
    assert b"JITSERVER_REPORT='run.txt': expected 'off', 'lines', 'text', 'json', or a file" in err


@pytest.mark.slow
def test_help_names_the_options(tmp_path: Path) -> None:
    out, err, status = run("", tmp_path, "--help")
    assert (err, status) == ("", 0)
    assert all(option in out for option in ("--no-jit", "--report", "-m"))


JIT = "import jax\nprint(type(jax.jit(abs)).__module__)\n"


@pytest.mark.slow
def test_routing_is_on_unless_it_is_switched_off(tmp_path: Path) -> None:
    assert run(JIT, tmp_path, "program.py") == ("jitclient.calls.remote_function\n", "", 0)
    assert run(JIT, tmp_path, "-m", "program") == ("jitclient.calls.remote_function\n", "", 0)
    assert run(JIT, tmp_path, "--no-jit", "program.py") == ("jaxlib._jax\n", "", 0)


@pytest.mark.slow
def test_packages_are_routed_that_are_named(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("import jax\nf = jax.jit(abs)\n")
    source = f"import sys\nsys.path.append({str(library.parent)!r})\nimport library as l\nprint(type(l.f).__module__)\n"
    assert run(source, tmp_path, "program.py") == ("jaxlib._jax\n", "", 0)
    routed = run(source, tmp_path, "--package", "library", "program.py")
    assert routed == ("jitclient.calls.remote_function\n", "", 0)


@pytest.mark.slow
def test_a_program_of_the_name_of_ours_is_not_found_by_us(tmp_path: Path) -> None:
    """The working directory is on the path for `-m`, but not for a script of another folder."""
    (tmp_path / "argparse.py").write_text("raise ImportError('not this one')\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "script.py").write_text("import argparse\nprint('ran')\n")
    assert run("", tmp_path, "other/script.py") == ("ran\n", "", 0)
