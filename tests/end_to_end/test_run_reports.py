"""The picture of a run, from fresh processes: programs that were made in the first are found in the second."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

JITS = """
import jax

@jax.jit
def doubled(x):
    return x * 2 + 7.25

@jax.jit
def total(x):
    return (x - 7.25).sum()

print(float(total(doubled(jax.numpy.arange(3.0)))))
"""
DECORATED = """
import sys
import jitclient

@jitclient.jit
def tripled(x):
    return x * 3

print(float(tripled(2.0)))
"""
SCALED = """
import jitclient

SCALE = 3.5

@jitclient.jit
def scaled(x):
    return x * SCALE

scaled(2.0)
"""


def run(folder: Path, source: str, *words: str, report: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program under `python -m jitclient` with options, or without them under plain Python."""
    (folder / "program.py").write_text(source)
    started = ["-m", "jitclient", *words] if words else []
    return subprocess.run(
        [sys.executable, *started, "program.py"],
        cwd=folder,
        env={**os.environ, **({"JITSERVER_REPORT": report} if report else {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def traced(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the complete events of a trace, and its figures; check that the events are valid."""
    found = json.loads(path.read_text())
    events = [event for event in found["traceEvents"] if event["ph"] == "X"]
    named = {(event["pid"], event["tid"]) for event in found["traceEvents"] if event["name"] == "thread_name"}
    assert {event["ph"] for event in found["traceEvents"]} == {"M", "X"}
    for event in events:
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        assert (event["pid"], event["tid"]) in named
    check_nesting(events)
    return events, found["otherData"]


def times(event: dict[str, Any]) -> tuple[int, int]:
    """Return start and end in nanoseconds."""
    return round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)


def check_nesting(events: list[dict[str, Any]]) -> None:
    """Check that two events of a lane are nested or do not overlap."""
    lanes: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        lanes.setdefault((event["pid"], event["tid"]), []).append(times(event))
    for lane in lanes.values():
        around: list[int] = []
        for start, end in sorted(lane, key=lambda each: (each[0], -each[1])):
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1]
            around.append(end)


def is_inside(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return times(outer)[0] <= times(inner)[0] and times(inner)[1] <= times(outer)[1]


@pytest.mark.usefixtures("daemon")
def test_a_first_run_makes_and_a_second_finds(tmp_path: Path) -> None:
    for is_first in (True, False):
        done = run(tmp_path, JITS, "--report=run.json")
        assert (done.returncode, done.stdout) == (0, "6.0\n"), done.stderr
        assert done.stderr.splitlines()[-1].endswith(f"report: {tmp_path / 'run.json'}")
        events, figures = traced(tmp_path / "run.json")
        [program_pid] = {event["pid"] for event in events if event["cat"] == "program"}
        here: dict[str, list[dict[str, Any]]] = {}
        there: dict[str, list[dict[str, Any]]] = {}
        for event in events:
            (here if event["pid"] == program_pid else there).setdefault(event["cat"], []).append(event)
        assert (figures["made"], figures["found"]) == ((2, 0) if is_first else (0, 2))
        assert [each["program"] for each in figures["programs"]] == ["doubled(f32[3])", "total(f32[3])"]
        assert [each["calls"] for each in figures["programs"]] == [1, 1]
        assert len(here["program"]) == len(here["look-up"]) == len(here["call"]) == 2
        assert "import jax" in {event["name"] for event in here["import"]}
        waits = here.get("wait", [])
        assert len(waits) == (2 if is_first else 0)
        for step in ("trace", "lower", "compile"):
            steps = there.get(step, [])
            assert all(map(is_inside, steps, waits))
            own = [event for event in here.get(step, []) if event["args"]]
            assert [len(steps), len(own)] == [len(waits), 0 if step == "compile" else len(waits)]
        assert figures["second_run"]["made_seconds"] > 0 or not is_first


@pytest.mark.usefixtures("daemon")
def test_a_changed_value_is_named(tmp_path: Path) -> None:
    for source in (SCALED, SCALED.replace("3.5", "4.5")):
        done = run(tmp_path, source, report="run.json")
        assert done.returncode == 0, done.stderr
    [program] = traced(tmp_path / "run.json")[1]["programs"]
    assert (program["level"], program["differences"]) == ("made", ["global SCALE: 3.5 -> 4.5"])


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("1 / 0", 1),
        ("sys.exit(3)", 3),
        ("raise KeyboardInterrupt", -2),
        ("import os; os.chdir('/')", 0),
        ("import os; os.fork() and os.wait()", 0),
    ],
)
def test_a_decorated_script_has_a_page_however_it_ends(end: str, status: int, tmp_path: Path) -> None:
    done = run(tmp_path, DECORATED + end, report="run.html")
    assert (done.returncode, done.stdout.splitlines()[0]) == (status, "6.0"), done.stderr
    assert done.stderr.count("report: ") == 1
    page = (tmp_path / "run.html").read_text()
    data = re.search(r'<script id="run" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert [each["program"] for each in json.loads(data.group(1))["otherData"]["programs"]] == ["tripled(f32[]*)"]
    assert "http" not in page
    assert sorted(each.name for each in tmp_path.iterdir()) == ["program.py", "run.html"]


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_without_a_file_only_the_latest_events_are_kept(tmp_path: Path) -> None:
    more = """
from jitclient.core.events import log
from jitclient.session import process
loaded = {"jitclient.api.report_file", "jitclient.session.timed_session"} & sys.modules.keys()
print(log.is_asked, log.events.maxlen, type(process.current).__name__, sorted(loaded))
"""
    for report in ("", "text"):
        done = run(tmp_path, DECORATED + more, report=report)
        assert done.stdout.splitlines() == ["6.0", "False 1000 Session []"], done.stderr
    assert done.stderr.startswith("jitserver: programs  tripled(f32[]*)  found in memory")


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_a_file_that_cannot_be_written_is_one_notice(tmp_path: Path) -> None:
    done = run(tmp_path, DECORATED, report="no/such/run.html")
    assert (done.returncode, done.stdout) == (0, "6.0\n")
    assert done.stderr.count("\n") == 1
    assert "was not written (No such file or directory)" in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_another_suffix_ends_the_program_at_its_first_jit(tmp_path: Path) -> None:
    done = run(tmp_path, DECORATED, report="run.txt")
    assert (done.returncode, done.stdout) == (1, "")
    assert "SettingsError: JITSERVER_REPORT='run.txt': expected 'off', 'lines', 'text', 'json', or" in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_a_child_of_multiprocessing_leaves_the_report_to_its_parent(tmp_path: Path) -> None:
    source = """
        import multiprocessing

        import jitclient

        jitclient.install()
        import jax

        def work():
            print(float(jax.jit(lambda x: x + 1.5)(1.0)))

        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=work)
            child.start()
            child.join()
    """
    done = run(tmp_path, textwrap.dedent(source), report="run.json")
    assert (done.returncode, done.stdout) == (0, "2.5\n"), done.stderr
    assert done.stderr.count("report: ") == 1
    assert traced(tmp_path / "run.json")[1]["programs"] == []
