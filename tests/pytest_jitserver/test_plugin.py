"""The plugin of pytest: a suite's verdicts are those of plain JAX, and its compilations are found by the next run."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.conftest import run_python

SUITE = Path(__file__).with_name("suite.py")
OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) \S+::(\w+)", re.M)
COUNTS = re.compile(
    r"^jitserver: \d+ compilations: (\d+) found \(.*?\), (\d+) made \(.*?\), (\d+) made in each run", re.M
)

Pytest = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run_pytest(tmp_path: Path) -> Pytest:
    """Runs pytest with the plugin in a directory of the test's own, where XLA may use any platform."""

    def run(*arguments: str, source: str = "", **env: str) -> CompletedProcess[str]:
        if source:
            (tmp_path / "test_source.py").write_text(source)
        # The plugin of an installed jitserver has the same name.
        words = ("-m", "pytest", "-p", "pytest_jitserver", "-p", "no:cacheprovider", *arguments)
        return run_python(*words, env={"JAX_PLATFORMS": "", **env}, cwd=tmp_path)

    return run


@pytest.mark.slow
def test_a_suite_has_the_verdicts_of_plain_jax_and_finds_its_compilations(run_pytest: Pytest, tmp_path: Path) -> None:
    shutil.copy(SUITE, tmp_path / "test_suite.py")
    plain = run_pytest("-rA", "-Werror")
    first = run_pytest("-rA", "-Werror", "--jitserver", "--jitserver-cache=cache")
    (tmp_path / "pytest.ini").write_text("[pytest]\njitserver = true\n")
    second = run_pytest("-rA", "-Werror", "--jitserver-cache=cache", "-n", "2", "--jitserver-report")
    verdicts, *others = [sorted(OUTCOME.findall(done.stdout)) for done in (plain, first, second)]
    assert len(verdicts) == SUITE.read_text().count("\ndef test_")
    assert {outcome for outcome, _ in verdicts} == {"PASSED", "FAILED", "XFAIL"}
    assert others == [verdicts, verdicts]
    assert "jitserver:" not in plain.stdout
    (found, made, each_run), (found_again, made_again, each_run_again) = (
        map(int, COUNTS.findall(done.stdout)[0]) for done in (first, second)
    )
    # Of two equal programs of the first run, the second one is found.
    assert made > 5 > found
    assert (made_again, each_run_again) == (0, each_run)
    # Each worker compiles what it needs itself.
    assert found_again >= made + found
    assert "because the program calls back into Python" in second.stdout
    assert re.findall(r"made by a test: 1 in .*, test_suite.py::(\w+)", second.stdout) == ["test_a_callback"]


WITHOUT_JAX = """
import sys

def test_what_is_loaded():
    assert ("jitclient" in sys.modules) is {}
    assert "jitserver" not in sys.modules and "jax" not in sys.modules
"""


def test_a_suite_that_does_not_ask_loads_nothing(run_pytest: Pytest) -> None:
    done = run_pytest(source=WITHOUT_JAX.format(False))
    assert (done.returncode, "jitserver:" in done.stdout) == (0, False), done.stdout


@pytest.mark.slow
def test_a_suite_without_jax_has_no_line(run_pytest: Pytest) -> None:
    done = run_pytest("--jitserver", "--jitserver-cache=cache", source=WITHOUT_JAX.format(True))
    assert (done.returncode, "jitserver:" in done.stdout) == (0, False), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "env", "reason"),
    [
        (("--jitserver-cache=test_source.py",), {}, "test_source.py"),
        ((), {"JITSERVER_CLIENT_CACHE": "0"}, "JITSERVER_CLIENT_CACHE=0"),
        ((), {"JITSERVER_TIMEOUT": "soon"}, "expected a number of seconds"),
    ],
)
def test_a_cache_that_cannot_be_used_is_a_line_and_no_failure(
    run_pytest: Pytest, options: tuple[str, ...], env: dict[str, str], reason: str
) -> None:
    done = run_pytest("--jitserver", *options, source="def test_nothing():\n    pass\n", **env)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("jitserver: is off: ")]
    assert (done.returncode, reason in line) == (0, True), done.stdout
    quiet = run_pytest("--jitserver", "-q", *options, **env)
    assert (quiet.returncode, "jitserver:" in quiet.stdout) == (0, False), quiet.stdout


def test_the_figures_of_all_workers_are_added() -> None:
    import pytest_jitserver

    def of(found: int, made: int, *tests: tuple[float, int, str], **excluded: tuple[int, float]) -> dict[str, Any]:
        return {"found": (found, 2.0 * found), "made": (made, 0.5), "excluded": excluded, "tests": [*tests]}

    figures = [
        of(3, 1, (0.4, 1, "a")),
        of(1000, 0, reason=(2, 5.0)),
        of(0, 0, (1.0, 1, "b"), reason=(1, 1.0)),
    ]
    line, *details = pytest_jitserver._lines(figures, wants_report=True)
    assert line == (
        "jitserver: 1,007 compilations: 1,003 found (0:33:26 saved), 1 made (1.5 s), 3 made in each run (6.0 s)"
    )
    assert details == [
        "  made in each run: 3 in 6.0 s, because reason",
        "  made by a test: 1 in 1.0 s, b",
        "  made by a test: 1 in 400 ms, a",
    ]
    assert list(pytest_jitserver._lines([of(0, 0)], wants_report=True)) == []


OF_WORKERS = """
import os

def test_memory():
    assert os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") == {!r}
"""


@pytest.mark.parametrize(
    ("options", "env", "expected"),
    [
        (["--jitserver", "-n", "1"], {}, "false"),
        (["--jitserver", "-n", "1"], {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, "true"),
        (["--jitserver", "-n", "0"], {}, None),
        (["-n", "1"], {}, None),
    ],
    ids=["a worker", "a worker with a setting", "no worker", "without the plugin"],
)
def test_workers_share_the_memory_of_an_accelerator(
    options: list[str], env: dict[str, str], expected: str | None, run_pytest: Pytest
) -> None:
    done = run_pytest(*options, source=OF_WORKERS.format(expected), **env)
    assert done.returncode == 0, done.stdout
