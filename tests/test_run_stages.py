"""A test that fails runs once more, alone: it is unsteady if it passes then, and nothing else that fails is green."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
PYTEST = f"{shlex.quote(sys.executable)} -m pytest"

HELPER = """
import os, pathlib, pytest

def first_time():
    known = os.path.exists("flag")
    pathlib.Path("flag").touch()
    return not known
"""

UNSTEADY = """
def test_unsteady():
    print("printed " * 3)
    assert not first_time(), "only at first"
"""

BROKEN_AND_STEADY = """
def test_broken():
    assert False

def test_steady():
    pass
"""

Stages = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    """Runs stages, each a command and the one for a test alone, in a folder that has one file of tests.

    There, `first_time()` is true once, and each run of a test is a line of the file `ran`.
    """
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p xdist -p no:cacheprovider\n")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(TOP / 'tests')!r})\n"
        "from outcomes import record_outcomes as pytest_configure\n"
        "def pytest_runtest_setup(item):\n    open('ran', 'a').write(f'{item.name}\\n')\n"
    )

    def start(tests: str, *commands: tuple[str, str]) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "test_it.py").write_text(HELPER + textwrap.dedent(tests))
        options = [word for pair in commands or [(f"{PYTEST} -n 0", f"{PYTEST} -n 0")] for word in ("--stage", *pair)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return subprocess.run(
            [sys.executable, TOP / "scripts" / "run_stages.py", *options],
            cwd=tmp_path,
            env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # it starts in half the time
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return start


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().split()


def closing_line(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stdout.splitlines()[-1].strip("= ").partition(" in ")[0]


def test_a_test_that_passes_alone_is_unsteady(stages: Stages) -> None:
    done = stages(UNSTEADY)
    assert done.returncode == 0, done.stdout
    listed = done.stdout.partition("== the failure of test_it.py::test_unsteady")[2]
    assert "AssertionError: only at first" in listed
    assert "printed printed printed" in listed
    unsteady = f"\nunsteady: test_it.py::test_unsteady (in: {PYTEST} -n 0)\n    E       AssertionError: only at first\n"
    assert unsteady in listed
    assert re.search(rf"\ntook \d+ s: {PYTEST} -n 0\n", done.stdout)
    assert closing_line(done) == "1 passed, 1 unsteady"


@pytest.mark.slow
def test_a_test_that_fails_alone_too_is_red(stages: Stages, tmp_path: Path) -> None:
    done = stages(UNSTEADY + BROKEN_AND_STEADY)
    assert done.returncode == 1, done.stdout
    assert "\nunsteady: test_it.py::test_unsteady " in done.stdout
    assert "\nfailed: test_it.py::test_broken " in done.stdout
    assert closing_line(done) == "1 failed, 2 passed, 1 unsteady"
    assert ran(tmp_path) == ["test_unsteady", "test_broken", "test_steady", "test_unsteady", "test_broken"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [5, 6])
def test_more_than_five_failures_are_red_at_once(count: int, stages: Stages, tmp_path: Path) -> None:
    done = stages(f"""
        @pytest.mark.parametrize("n", range({count}))
        def test_it(n):
            assert os.path.exists(f"flag{{n}}") or pathlib.Path(f"flag{{n}}").touch()
    """)
    assert done.returncode == (count > 5), done.stdout
    assert len(ran(tmp_path)) == (10 if count == 5 else 6)
    assert closing_line(done) == ("5 passed, 5 unsteady" if count == 5 else "6 failed")


@pytest.mark.slow
def test_what_fails_runs_again_after_all_stages_as_in_its_own(stages: Stages, tmp_path: Path) -> None:
    first = f"MODE=first {PYTEST} -n 2 -k unsteady", f"MODE=first {PYTEST} -n 0"
    second = f"MODE=second {PYTEST} -n 2 -k steady_too", f"MODE=second {PYTEST} -n 0"
    done = stages(
        """
        def test_unsteady():
            assert os.environ["MODE"] == "first" and "JITSERVER_TEST_OUTCOMES" not in os.environ
            assert not first_time()

        def test_steady_too():
            assert os.environ["MODE"] == "second"
        """,
        first,
        second,
    )
    assert done.returncode == 0, done.stdout
    assert ran(tmp_path) == ["test_unsteady", "test_steady_too", "test_unsteady"]
    assert closing_line(done) == "2 passed, 1 unsteady"


@pytest.mark.slow
@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_a_failure_around_a_test_is_one_of_the_test(when: str, stages: Stages) -> None:
    done = stages(f"""
        @pytest.fixture
        def around():
            if {when == "teardown"}:
                yield
            assert not first_time()
            if {when == "setup"}:
                yield

        @pytest.mark.parametrize("x", ["a b::c[']"])
        def test_it(around, x):
            pass
    """)
    assert done.returncode == 0, done.stdout
    assert "\nunsteady: test_it.py::test_it[a b::c[']] " in done.stdout
    assert closing_line(done) == "1 passed, 1 unsteady"


@pytest.mark.slow
@pytest.mark.parametrize("again", ["pytest.skip('')", "pytest.xfail('')", "os._exit(0)"])
def test_what_does_not_pass_when_it_runs_again_has_failed(again: str, stages: Stages) -> None:
    done = stages(f"""
        def test_it():
            assert not first_time()
            {again}
    """)
    assert done.returncode == 1, done.stdout
    assert "\nfailed: test_it.py::test_it " in done.stdout
    assert closing_line(done) == "1 failed"


@pytest.mark.slow
def test_a_test_whose_process_crashed_runs_once_more(stages: Stages) -> None:
    done = stages(
        """
        def test_it():
            first_time() and os._exit(1)
        """,
        (f"{PYTEST} -n 2", f"{PYTEST} -n 0"),
    )
    assert done.returncode == 0, done.stdout
    assert "\nunsteady: test_it.py::test_it " in done.stdout


TROUBLES = {
    "a crash of pytest": ("-n 0", "def test_other():\n    os._exit(1)", "it ended with status 1 before"),
    "a quiet end of pytest": ("-n 0", "def test_other():\n    os._exit(0)", "it ended with status 0 before"),
    "an exit": ("-n 0", "def test_other():\n    pytest.exit('no more')", "it ended with status 2"),
    "an exit of a worker": ("-n 2", "def test_other():\n    pytest.exit('no more')", "it ended with status 2"),
    "an interrupt": ("-n 0", "def test_other():\n    raise KeyboardInterrupt", "it ended with status 2"),
    "an unreadable file": ("-n 0", "raise ImportError", "it ended with status 2"),
    "an unreadable file in workers": ("-n 2", "raise ImportError", "not all tests could be collected"),
    "an unreadable file beside others": (
        "-n 0 --continue-on-collection-errors",
        "raise ImportError",
        "not all tests could be collected",
    ),
    "no test": ("-n 0 -k nothing", "", "it ended with status 5"),
    "a wrong option": ("-n 0 --no-such-option", "", "it ended with status 4"),
    "only tests that are skipped": ("-n 0 test_other.py", "def test_other():\n    pytest.skip('')", "no test ran"),
    "a failure that is hidden": ("-n 0 || exit 0", "", "it ended with status 0, and 1 tests failed"),
    "a failure of no test": (
        "-n 0 test_other.py && exit 1",
        "def test_other():\n    pass",
        "it ended with status 1, and 0 tests failed",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_all_else_that_goes_wrong_is_red_at_once(trouble: str, stages: Stages, tmp_path: Path) -> None:
    options, other, reason = TROUBLES[trouble]
    (tmp_path / "test_other.py").write_text(f"import os, pytest\nfrom test_it import first_time\n{other}\n")
    stage = f"{PYTEST} {options}"
    done = stages("def test_unsteady():\n    assert os.path.exists('flag')", (stage, stage), ("echo later", ""))
    assert done.returncode == 1, done.stdout
    assert f"\n== red: {reason}" in done.stdout
    assert "== once more" not in done.stdout
    assert "\nlater\n" not in done.stdout
    assert "1 error" in closing_line(done)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["exit 1", "exit 0", "kill -9 $$"])
def test_a_command_that_runs_no_pytest_is_red(command: str, stages: Stages) -> None:
    done = stages("", (command, command))
    assert done.returncode == 1, done.stdout
    assert closing_line(done) == "1 error"
