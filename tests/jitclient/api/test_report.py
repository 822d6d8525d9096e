"""The report at the end of a program: where its programs came from, what that saved, and what ran in its process."""

import os
import re
from pathlib import Path

import pytest

import jitserver
from jitclient.api import report
from jitclient.calls.usage import Got, Local, Usage
from jitclient.jaxside.compilation_cache import CompilationCache

from .programs import Program
from .test_run_as_main import jitclient


def used(*got: tuple[str, str, float], local: tuple[Local, ...] = ()) -> Usage:
    usage = Usage()
    for program, level, seconds in got:
        usage.add(Got(program, level), seconds)
    for one in local:
        usage.add_local(one)
    return usage


def test_each_program_has_a_line_with_its_level_and_its_seconds() -> None:
    usage = used(
        ("step(f32[8])", "memory", 2.0), ("step(f32[8])", "memory", 2.0), ("f()", "disk", 0.5), ("g()", "made", 3.0)
    )
    assert [*report.lines(usage)] == [
        "programs  f()           found on the disk, 500 ms saved",
        "          g()           made in 3.0 s",
        "          step(f32[8])  found in memory, 4.0 s saved, 2 times",
        "hits      2 in memory, 1 on the disk; 1 made",
        "saved     4.5 s of tracing and compiling",
        "local     nothing",
    ]


def test_a_program_that_was_made_again_says_why() -> None:
    usage = Usage()
    usage.add(Got("f()", "remade", "no room"), 2.0)
    assert [*report.lines(usage)][:2] == [
        "programs  f()  made again in 2.0 s (its executable was not kept: no room)",
        "hits      0 in memory, 0 on the disk; 0 made, 1 made again",
    ]


def test_compilations_of_jax_itself_have_a_line(tmp_path: Path) -> None:
    cache = CompilationCache(tmp_path)
    assert [*report.lines(Usage(), cache)] == [*report.lines(Usage())]
    cache.count_compiled(1.5)
    cache.put("key", b"executable")
    cache.get("key")
    cache.count_found()
    assert "jax       1 compilations found, 1.5 s saved; 1 made in this process" in report.lines(Usage(), cache)


def test_what_was_done_here_is_said_with_the_reason() -> None:
    local = Local("g", "traced", "it reads the clock"), *[Local("f", "run", "no daemon")] * 2
    assert [*report.lines(used(local=local))][-2:] == [
        "local     f was run, 2 times: no daemon",
        "          g was traced: it reads the clock",
    ]


def test_a_long_list_is_cut() -> None:
    rows = [*report.lines(used(*((f"f{number:02}()", "made", 1.0) for number in range(25))))]
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
        with jitserver.run_daemon(address, folder, options=["--no-prewarm"], env=paths):
            for _ in range(runs):
                out, rows, status = of(JITS, tmp_path, "--report", env=env)
                assert (out, status) == (["jitclient.arrays.array 4.0", "2.0"], 0)
                levels += re.findall(r"doubled\(f32\[\]\*\) +(made|found in memory|found on the disk)", "\n".join(rows))
                assert "clocked was traced: time.time is read" in rows[-1]
    assert levels == ["made", "found in memory", "found on the disk"]
