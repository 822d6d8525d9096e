"""File of `--report=FILE`, which is replaced as a whole: the run in Chrome's trace format, or a page that draws that.

The "Trace Event Format", which Perfetto and chrome://tracing open, has complete events (`"ph": "X"`) and metadata
(`"ph": "M"`), with times in microseconds. The program and the daemon are processes; a thread of the daemon has the work
for one thread of the program.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from importlib import resources
from typing import Any

import msgspec

from jitclient.api.report import RunReport, report_now
from jitclient.core import events
from jitclient.core.events import Event, Log, ProgramRecord
from jitclient.core.notices import print_notice
from jitclient.jaxside import compilation_cache
from jitclient.jaxside.compile_events import COMPILE
from jitclient.wire import labels

_MADE = ("made", "remade")
_MAKING = frozenset({"trace", "lower", "upload", "wait", "compare", "settle", "explain"})
"""Steps that a run skips if it finds the program."""

_COMPILING = frozenset({"upload", "wait", "explain"})
"""Steps that it skips if each process traces the function."""

_PLACE = "{}"
"""Content of the template's element for the data."""

_ESCAPES = {ord(each): f"\\u{ord(each):04x}" for each in "<>&"}
"""Escapes without which a name could end the element, and become a part of the page."""


def write_report(path: str) -> None:
    """Write the report of this run to an absolute path, and print a line: where it is, or why it was not written."""
    report = report_now()
    try:
        trace = trace_of(events.log, report, compilation_cache.own() is not None)
        _replace(path, encoded(trace, path))
    except OSError as error:
        print_notice(f"the report {path} was not written ({error.strerror or error}). Name a file that you may write.")
    # The program has ended: a mistake of ours must not look like one of the program.
    except Exception as error:
        print_notice(f"the report {path} was not written ({type(error).__name__}: {error}). Please report this.")
    else:
        saved, others = f"{labels.seconds(max(0.0, report.saved_seconds))} saved", trace["otherData"]
        print_notice(f"{saved}, {others['found']} found, {others['made']} made; report: {path}")


def encoded(trace: dict[str, Any], path: str) -> bytes:
    """Return the content of the file, by the suffix of its name: the trace as JSON, or a page with it, in UTF-8."""
    data = msgspec.json.encode(trace)
    if not path.endswith(".html"):
        return data
    template = resources.files("jitclient.api").joinpath("run_page.html").read_text(encoding="utf-8")
    before, element, after = template.partition(f'<script id="run" type="application/json">{_PLACE}')
    return f"{before}{element.removesuffix(_PLACE)}{data.decode().translate(_ESCAPES)}{after}".encode()


def trace_of(log: Log, report: RunReport, keeps_compilations: bool) -> dict[str, Any]:
    """Return the trace of a run that ends now.

    Its figures have an estimate of a second run: this run without the `made_seconds` in which only programs were made.

    Args:
        log: the events of the run.
        report: the counts of the run.
        keeps_compilations: whether a second run finds what jax itself compiled in the process.
    """
    done, seconds, pid = list(log.events), (log.now() - log.origin) / 1e9, os.getpid()
    # A daemon on another machine may have the same number.
    daemon = log.daemon if log.daemon not in (None, pid) else 0
    name = _text(log.started.name)
    named = [_named("process_name", pid, 0, f"program {name}"), _named("process_name", daemon, 0, "jitserver daemon")]
    drawn = []
    # Perfetto shows thread 0 as that of no process.
    for tid, thread in enumerate(sorted({event.thread for event in done}), 1):
        for in_daemon, process, title in ((False, pid, thread[1]), (True, daemon, f"daemon, for {thread[1]}")):
            own = nested(event for event in done if (event.thread, event.in_daemon) == (thread, in_daemon))
            named += [_named("thread_name", process, tid, title)] if own else []
            drawn += [_drawn(event, log.origin, process, tid) for event in own]
    waited = {event.program: event.end - event.start for event in done if event.kind == "program"}
    made_seconds = _union(event[2:4] for event in done if _is_skipped(event, keeps_compilations)) / 1e9
    figures = {
        "program": name,
        "pid": pid,
        "began": log.began,
        "seconds": seconds,
        "made": sum(program.level in _MADE for program in log.programs),
        "found": sum(program.level not in ("", *_MADE) for program in log.programs),
        "second_run": None if log.dropped else {"seconds": seconds - made_seconds, "made_seconds": made_seconds},
        "programs": [_item(program, waited.get(program, 0)) for program in log.programs],
        "transfers": [
            {"kind": kind, "times": of.times, "seconds": of.nanoseconds / 1e9, "sent": of.sent, "received": of.received}
            for kind, of in sorted(dict(log.transfers).items())
        ],
        "report": report,
        "dropped": log.dropped,
    }
    return {"traceEvents": named + drawn, "displayTimeUnit": "ms", "otherData": figures}


def nested(done: Iterable[Event]) -> list[Event]:
    """Return the events of one thread and side in the order of their starts, each of which ends within those around."""
    found, around = [], list[int]()
    # An outer event ends after the inner ones, and is added later.
    numbered = sorted(enumerate(done), key=lambda item: (item[1].start, -item[1].end, -item[0]))
    for _, event in numbered:
        while around and around[-1] <= event.start:
            around.pop()
        around.append(min([event.end, *around[-1:]]))
        found.append(event._replace(end=around[-1]))
    return found


def _named(what: str, pid: int | None, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _drawn(event: Event, origin: int, pid: int | None, tid: int) -> dict[str, Any]:
    """Return an event with the fields of its program that are not empty."""
    about: dict[str, Any] = {}
    if (program := event.program) is not None and program.number >= 0:
        about = {"program": program.label, "where": _text(program.where), "got": program.level or "here"}
        about |= {"why": program.why, "differences": program.differences}
        about = {"number": program.number, **{key: value for key, value in about.items() if value}}
    start = max(event.start - origin, 0)
    return {
        "ph": "X",
        "name": f"{event.kind} {event.label}".strip(),
        "cat": event.kind,
        "ts": start / 1e3,
        "dur": (event.end - origin - start) / 1e3,
        "pid": pid,
        "tid": tid,
        "args": about,
    }


def _item(record: ProgramRecord, waited: int) -> dict[str, Any]:
    """Return a program: how it was got, the seconds from the look-up until it could be called, and its calls."""
    return {
        "program": record.label,
        "where": _text(record.where),
        "level": record.level or "here",
        "why": record.why,
        "differences": record.differences,
        "waited": waited / 1e9,
        "steps": record.seconds,
        "saved": record.saved,
        "calls": record.times,
        "queued": record.queued,
        "call_seconds": record.nanoseconds / 1e9,
        "sent": record.sent,
        "received": record.received,
    }


def _text(path: str) -> str:
    """Return a path as text that can be encoded: its bytes may be no UTF-8."""
    return path.encode(errors="backslashreplace").decode()


def _is_skipped(event: Event, keeps_compilations: bool) -> bool:
    """Return whether the program only waited for what a second run finds."""
    program = event.program
    if event.in_daemon or event.kind == COMPILE:
        return keeps_compilations and not event.in_daemon
    steps = _COMPILING if program is not None and program.is_traced_each_time else _MAKING
    return program is not None and program.level in _MADE and event.kind in steps


def _union(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _replace(path: str, content: bytes) -> None:
    """Write a file beside the path and move it there, with the permissions of a new file."""
    if os.path.isdir(path):
        raise IsADirectoryError(None, "it is a directory")
    folder, name = os.path.split(path)
    fd, temporary = tempfile.mkstemp(prefix=f".{name[:100]}.", dir=folder)
    try:
        with open(fd, "wb") as file:
            file.write(content)
        umask = os.umask(0o077)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
