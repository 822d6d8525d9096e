"""The report at the end of a program: where its programs came from, what that saved, and what ran in its process."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from jitclient.api import report
from jitclient.core import events
from jitclient.core.events import Log, Started
from jitclient.jaxside import compile_events

from ...running_daemon import run_daemon
from .programs import Program
from .test_run_as_main import jitclient

FOUND = "/jax/compilation_cache/compile_time_saved_sec"


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log of a process that has done nothing."""
    made = Log()
    monkeypatch.setattr(events, "log", made)
    monkeypatch.setattr(report, "made_in_each_run", list)  # not what earlier tests compiled
    return made


def used(*got: tuple[str, str, float]) -> None:
    for program, level, seconds in got:
        events.log.count("made" if level == "made" else "found", program, level, "", seconds=seconds)


def lines(**started: Any) -> list[str]:
    events.log.start(Started(**started))
    return [*report.lines(report.report_now())]


def test_each_program_has_a_line_with_its_level_and_its_seconds() -> None:
    used(("step(f32[8])", "memory", 2.0), ("step(f32[8])", "memory", 2.0), ("f()", "disk", 0.5), ("g()", "made", 3.0))
    assert lines() == [
        "programs  f()           found on the disk, 500 ms saved",
        "          g()           made in 3.0 s",
        "          step(f32[8])  found in memory, 4.0 s saved, 2 times",
        "hits      2 in memory, 1 on the disk; 1 made",
        "saved     4.5 s of tracing and compiling",
        "local     nothing",
    ]


def test_a_program_that_was_made_again_says_why() -> None:
    events.log.count("made", "f()", "remade", "no room", seconds=2.0)
    assert lines()[:2] == [
        "programs  f()  made again in 2.0 s: no room",
        "hits      0 in memory, 0 on the disk; 0 made, 1 made again",
    ]


def test_a_program_that_took_longer_to_find_than_to_make_saved_no_time() -> None:
    used(("f()", "memory", -0.5))
    assert lines()[0] == "programs  f()  found in memory, no time saved"
    assert "saved     0 ms of tracing and compiling" in lines()


def test_compilations_of_jax_itself_have_a_line() -> None:
    compile_events.note(FOUND, 1.5)
    assert "jax       1 compilation found, 1.5 s saved; 0 made in this process" in lines()
    assert "saved     1.5 s of tracing and compiling; JAX's own cache would save 1.5 s of it" in lines()
    used(("f()", "memory", 4.0))
    events.log.count("saved by jax", seconds=3.0)
    assert "saved     5.5 s of tracing and compiling; JAX's own cache would save 4.5 s of it" in lines()
    for _ in range(2):
        events.log.count("compiled by jax", seconds=0.125)
    assert "jax       1 compilation found, 1.5 s saved; 2 made in this process in 250 ms" in lines()
    del events.log.counts["found by jax",]
    assert "jax       0 compilations found; 2 made in this process in 250 ms" in lines()


def test_packages_whose_jits_stayed_have_a_line_each() -> None:
    for package, name, seconds in (
        ("optax", "optax.f", 1.0),
        ("numpyro", "numpyro.g", 0.5),
        ("numpyro", "numpyro.h", 2.0),
        ("numpyro", "numpyro.g", 0.5),
        ("flax", "f", 1.0),
    ):
        events.log.count("package", package, name, seconds=seconds)
    assert lines(packages=["flax"])[2:4] == [
        "packages  numpyro: 2 functions compiled in this process in 3.0 s; --package numpyro would serve them",
        "          optax: 1 function compiled in this process in 1.0 s; --package optax would serve it",
    ]


def test_imports_of_the_helper_have_a_line() -> None:
    made = lines(preloaded=(1234, 2.5))
    assert "imports   1,234 modules imported before the program began, in 2.5 s" in made
    assert "imports   none before the program began: no helper is ready" in lines(why_fresh="no helper is ready")


def test_programs_get_json_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    compile_events.note(FOUND, 0.5)
    events.log.count("package", "optax", "optax.f", seconds=1.0)
    used(("f()", "memory", 2.0))
    events.log.count("local", "g", "run", "no daemon")
    events.log.count("moved in", "f()", "20")
    events.log.start(Started(preloaded=(10, 0.25)))
    report.print_report("json")
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line) == {
        "saved_seconds": 2.5,
        "programs": [{"program": "f()", "level": "memory", "times": 1, "seconds": 2.0, "why": ""}],
        "local": [{"function": "g", "what": "run", "times": 1, "why": "no daemon"}],
        "saved_by_jax_seconds": 0.5,
        "jax": {"found": 1, "saved_seconds": 0.5, "compiled": 0, "compiled_seconds": 0.0},
        "packages": [{"package": "optax", "functions": 1, "seconds": 1.0}],
        "imports": {"modules": 10, "seconds": 0.25, "why": ""},
        "moved_in": [{"program": "f()", "calls": 20, "times": 1}],
    }


def test_a_program_that_moved_in_is_named() -> None:
    for _ in range(2):
        events.log.count("moved in", "f()", "20")
    assert "here      f() after 20 calls, 2 times" in lines()


def test_what_was_done_here_is_said_with_the_reason() -> None:
    for key in (("g", "traced", "it reads the clock"), *[("f", "run", "no daemon")] * 2):
        events.log.count("local", *key)
    assert lines()[-2:] == [
        "local     f was run, 2 times: no daemon",
        "          g was traced: it reads the clock",
    ]


def test_a_long_list_is_cut() -> None:
    used(*((f"f{number:02}()", "made", 1.0) for number in range(25)))
    rows = lines()
    assert rows[20] == "          and 5 more"
    assert rows[21].startswith("hits      0 in memory, 0 on the disk; 25 made")


def of(
    source: str, tmp_path: Path, *options: str, env: dict[str, str] | None = None
) -> tuple[list[str], list[str], int]:
    """Return a program's stdout, its report, and its exit status, under `python -m jitclient`."""
    program = Program(source, command=(*options, "program.py"))
    program.write(tmp_path)
    out, err, status = program.run(tmp_path, jitclient, env)
    rows = [line.removeprefix("jitserver: ") for line in err.decode().splitlines() if line.startswith("jitserver: ")]
    return out.decode().splitlines(), rows, status


ENDS = {
    "returns": ("", 0),
    "raises": ("1 / 0", 1),
    "exits": ("raise SystemExit(3)", 3),
    "interrupted": ("raise KeyboardInterrupt", -2),
    "forks": ("import os, sys\nif os.fork():\n    os.wait()\nsys.exit(4)", 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_the_report_comes_once_however_the_program_ends(end: str, tmp_path: Path) -> None:
    source, status = ENDS[end]
    _, rows, ended = of(source, tmp_path, "--report")
    assert [row.split()[0] for row in rows] == ["programs", "hits", "saved", "local"]
    assert ended == status


@pytest.mark.slow
def test_the_report_comes_after_what_the_program_says_at_exit(tmp_path: Path) -> None:
    source = "import atexit, sys\natexit.register(print, 'jitserver: mine', file=sys.stderr)\n"
    assert of(source, tmp_path, "--report")[1][0] == "mine"
    assert of(source, tmp_path)[1] == ["mine"]


JITS = """
    import time
    import jax

    @jax.jit
    def doubled(x):
        return x * 2

    @jax.jit
    def clocked(x):
        return x + (time.time() > 0)

    print(type(doubled(1.0)).__module__, float(doubled(2.0)))
    print(float(clocked(1.0)))
"""


@pytest.mark.slow
def test_programs_are_reported_where_they_were_found(tmp_path: Path, short_path: Path) -> None:
    address, folder = f"unix:{short_path}/d.sock", str(short_path / "cache")
    env, paths = {"JITSERVER_ADDRESS": address}, {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    levels = []
    for runs in (2, 1):
        with run_daemon(address, folder, options=["--no-prewarm"], env=paths):
            for _ in range(runs):
                out, rows, status = of(JITS, tmp_path, "--report", env=env)
                assert (out, status) == (["jitclient.arrays.array 4.0", "2.0"], 0)
                levels += re.findall(r"doubled\(f32\[\]\*\) +(made|found in memory|found on the disk)", "\n".join(rows))
                assert "clocked was traced: time.time is read" in rows[-1]
                assert of(JITS, tmp_path, "--report=json", env=env)[0] == out
    assert levels == ["made", "found in memory", "found on the disk"]
