"""The file of a report: replaced as a whole, or one notice; valid events, and a page that no name can break."""

import json
import os
import re
import stat
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from jitclient.api import report_file
from jitclient.core import events
from jitclient.core.events import Event, Log
from jitclient.jaxside.compile_events import COMPILE

from .run_records import MILLISECOND, made_run, traced


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log of `made_run`."""
    made, _ = made_run()
    monkeypatch.setattr(events, "log", made)
    return made


def write(path: Path) -> None:
    report_file.write_report(str(path))


@pytest.mark.usefixtures("log")
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, umask = tmp_path / "run.json", os.umask(0o027)
    try:
        path.write_text("before")
        before = path.stat().st_ino
        write(path)
    finally:
        os.umask(umask)
    assert path.read_text().startswith('{"traceEvents"')
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
    assert capsys.readouterr().err == f"jitserver: 0 ms saved, 1 found, 1 made; report: {path}\n"


def test_a_mistake_of_ours_is_one_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_file, "trace_of", lambda *_: 1 / 0)
    write(tmp_path / "run.html")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("run.html was not written (ZeroDivisionError: division by zero). Please report this.")


def test_a_file_that_cannot_be_written_is_one_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.html").mkdir()
    for path, why in (
        (tmp_path / "run.html", "it is a directory"),
        (tmp_path / "no" / "r.html", "No such file or dir"),
    ):
        write(path)
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"jitserver: the report {path} was not written ({why}")
    assert [each.name for each in tmp_path.iterdir()] == ["run.html"]


# ---- the trace


def complete(trace: Any) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_the_daemon_has_a_lane_below_the_thread_that_waits(log: Log) -> None:
    names = [
        (each["name"], each["pid"], each["tid"], each["args"]["name"])
        for each in traced(log)["traceEvents"]
        if each["ph"] == "M"
    ]
    assert names == [
        ("process_name", os.getpid(), 0, "program train.py"),
        ("process_name", 4321, 0, "jitserver daemon"),
        ("thread_name", os.getpid(), 1, "MainThread"),
        ("thread_name", 4321, 1, "daemon, for MainThread"),
    ]
    assert {event["args"].get("number") for event in complete(traced(log))} == {None, 0, 1}


def test_events_have_microseconds_and_their_program(log: Log) -> None:
    [event] = [each for each in complete(traced(log)) if each["name"] == "compile f(f32[3])"]
    assert event == {
        "ph": "X",
        "name": "compile f(f32[3])",
        "cat": "compile",
        "ts": 250_000.0,
        "dur": 240_000.0,
        "pid": 4321,
        "tid": 1,
        "args": {
            "number": 0,
            "program": "f(f32[3])",
            "where": "a.py:7",
            "got": "made",
            "differences": ["global LR: 0.1 -> 0.2"],
        },
    }
    [imported] = [each for each in complete(traced(log)) if each["name"] == "import jax"]
    assert imported["args"] == {}


def test_of_events_with_the_same_times_the_later_one_is_around_the_others() -> None:
    done = [Event(kind, "", 0, 5, (0, "")) for kind in ("inner", "outer")]
    assert [event.kind for event in report_file.nested(done)] == ["outer", "inner"]


def test_events_of_a_thread_are_nested_and_never_overlap() -> None:
    times = (("c", 5, 12), ("a", 0, 10), ("b", 0, 4), ("d", 12, 13))
    done = [Event(kind, "", start, end, (0, "")) for kind, start, end in times]
    drawn = [(event.kind, event.start, event.end) for event in report_file.nested(done)]
    assert drawn == [("a", 0, 10), ("b", 0, 4), ("c", 5, 10), ("d", 12, 13)]


def test_programs_are_counted_by_how_they_were_got(log: Log) -> None:
    figures = traced(log)["otherData"]
    assert (figures["made"], figures["found"], figures["seconds"], figures["program"]) == (1, 1, 1.0, "train.py")
    made, other = figures["programs"]
    assert (made["program"], made["level"], made["waited"], made["calls"]) == ("f(f32[3])", "made", 0.3, 1)
    assert (made["differences"], made["sent"], made["received"]) == (["global LR: 0.1 -> 0.2"], 12, 4)
    assert (other["level"], other["saved"], other["steps"], other["calls"]) == ("memory", 2.5, {}, 0)


def test_a_program_that_could_not_be_made_runs_here(log: Log) -> None:
    with pytest.raises(ValueError, match="no"), log.program("h()", ""):
        raise ValueError("no")
    figures = traced(log)["otherData"]
    assert (figures["programs"][2]["level"], figures["programs"][2]["why"], figures["made"]) == ("here", "no", 1)


def test_a_path_need_not_be_text(log: Log) -> None:
    log.programs[0].where = "a\udcff.py:1"
    figures = traced(log, "a\udcff.py")["otherData"]
    assert (figures["program"], figures["programs"][0]["where"]) == ("a\\udcff.py", "a\\udcff.py:1")


def test_a_daemon_elsewhere_with_the_number_of_this_process_is_another(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 4321)
    assert [event["pid"] for event in traced(log)["traceEvents"][:2]] == [4321, 0]


# ---- a second run


def second_run(log: Log, keeps_compilations: bool = True) -> tuple[float, float]:
    found = traced(log, keeps_compilations=keeps_compilations)["otherData"]["second_run"]
    return round(found["seconds"], 6), round(found["made_seconds"], 6)


def test_a_second_run_has_all_but_what_was_made(log: Log) -> None:
    assert second_run(log) == (0.71, 0.29)  # not the capture, which it needs, too


def test_a_second_run_traces_what_each_process_traces() -> None:
    log, clock = made_run()
    log.programs[0].is_traced_each_time = True
    before = second_run(log)
    with log.span("trace"):
        clock.now += 100
    assert before == (0.71, 0.29)
    assert second_run(log) == (0.81, 0.29)


def test_time_of_two_threads_is_saved_once(log: Log) -> None:
    log.add("wait", 400 * MILLISECOND, 550 * MILLISECOND, program=log.programs[0])
    assert second_run(log) == (0.66, 0.34)


@pytest.mark.parametrize(("keeps", "seconds"), [(True, 0.61), (False, 0.71)])
def test_compilations_of_jax_are_saved_if_they_are_kept(keeps: bool, seconds: float, log: Log) -> None:
    log.add(COMPILE, 700 * MILLISECOND, 800 * MILLISECOND, "add")
    assert second_run(log, keeps)[0] == seconds


def test_nothing_is_computed_from_a_part_of_the_events(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", len(log.events))
    log.add("trace", 0, 1)
    figures = traced(log)["otherData"]
    assert (figures["second_run"], figures["dropped"]) == (None, 1)


# ---- the page


def page(name: str = "f") -> str:
    return report_file.encoded(traced(made_run(name)[0]), "a.html").decode()


class Elements(HTMLParser):
    """The elements of a page, and the text of its data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.data = ""
        self._is_data = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self._is_data = dict(attrs).get("id") == "run"

    def handle_endtag(self, tag: str) -> None:
        self._is_data = False

    def handle_data(self, data: str) -> None:
        if self._is_data:
            self.data += data


def test_the_page_has_the_trace(log: Log) -> None:
    trace = traced(log)
    assert json.loads(Elements(report_file.encoded(trace, "a.html").decode()).data) == trace


def test_no_name_breaks_out_of_the_data() -> None:
    name = "</script><b>&<!--<script>"
    plain, odd = (Elements(page(each)) for each in ("f", name))
    assert odd.names == plain.names
    assert json.loads(odd.data)["otherData"]["programs"][0]["program"] == f"{name}(f32[3])"


def test_the_page_needs_no_network() -> None:
    assert not re.search(r"https?:|//[\w.]+/|\bsrc=|\bhref=|@import|url\(", page())


def test_light_and_dark_have_the_same_colours() -> None:
    light, dark = (set(re.findall(r"(--[\w-]+): #", part)) for part in page().split("prefers-color-scheme: dark)", 1))
    assert light <= dark
    used = set(re.findall(r"var\((--[\w-]+)\)", page()))
    assert used <= light
