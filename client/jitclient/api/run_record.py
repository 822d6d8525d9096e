"""Record of a run, for a file: what its threads and the daemon did, which programs it used, what a second run costs."""

import os
from collections.abc import Iterable, Sequence

import msgspec

from jitclient.api.report import Report
from jitclient.core.spans import ProgramRecord, Span, Timeline, nested
from jitclient.jaxside.compile_events import COMPILE

_MADE = ("made", "remade")
_MAKING = frozenset({"trace", "lower", "upload", "wait", "compare", "settle", "explain"})
"""Steps that a run skips if it finds the program."""

_COMPILING = frozenset({"upload", "wait", "explain"})
"""Steps that it skips if each process traces the function."""


class Lane(msgspec.Struct):
    """Thread of the program, or the daemon while that thread waits for it; `depth` is the height of its stack."""

    name: str
    thread: int
    in_daemon: bool
    depth: int


class Piece(msgspec.Struct, array_like=True):
    """Work in a lane, with its depth in the stack; `start` and `seconds` since the time line began.

    `program` is the number of its program, or -1.
    """

    lane: int
    depth: int
    kind: str
    start: float
    seconds: float
    label: str
    program: int


class ProgramItem(msgspec.Struct):
    """Program that the run looked for.

    Attributes:
        program: name and arguments.
        where: file and line.
        level: where it was found, "made", "remade", or "here" if its calls run in the process.
        why: why it was traced or run in the process, or made again.
        differences: why it was made.
        waited: seconds from the look-up until the program could be called.
        steps: seconds of the steps on the daemon, when it was made in this run.
        saved: seconds that making took when it was made, if it was found.
        calls: number of calls, of which `queued` were not waited for.
        call_seconds: seconds that the process waited for calls.
        sent: bytes of the values that calls sent.
        received: bytes of the results that came with the answers.
    """

    program: str
    where: str
    level: str
    why: str
    differences: tuple[str, ...]
    waited: float
    steps: dict[str, float]
    saved: float
    calls: int
    queued: int
    call_seconds: float
    sent: int
    received: int


class Transfer(msgspec.Struct):
    """Transfers of one kind without a call, added up: "fetch", "send" or "finish"."""

    kind: str
    times: int
    seconds: float
    sent: int
    received: int


class SecondRun(msgspec.Struct):
    """Estimate of a second run: this run without the `made_seconds` in which only programs were made."""

    seconds: float
    made_seconds: float


class RunRecord(msgspec.Struct):
    """Record of a run. `dropped` is the number of spans that are left out."""

    name: str
    pid: int
    daemon: int
    began: float
    seconds: float
    made: int
    found: int
    lanes: list[Lane]
    pieces: list[Piece]
    programs: list[ProgramItem]
    transfers: list[Transfer]
    report: Report
    second_run: SecondRun | None
    dropped: int


def record_of(line: Timeline, name: str, report: Report, keeps_compilations: bool) -> RunRecord:
    """Return the record of a run that ends now.

    Args:
        line: the time line of the run.
        name: the name of the program.
        report: the counts of the run.
        keeps_compilations: whether a second run finds what jax itself compiled in the process.
    """
    spans, end = list(line.spans), line.now()
    lanes, pieces = _drawn(line.threads, spans)
    waited = {span.program: span.end - span.start for span in spans if span.kind == "program"}
    made = _nanoseconds(_skipped(spans, line.programs, keeps_compilations))
    found = sum(program.level not in ("", *_MADE) for program in line.programs)
    pid = os.getpid()
    return RunRecord(
        name=_text(name),
        pid=pid,
        # A daemon on another machine may have the same number.
        daemon=line.daemon if line.daemon not in (None, pid) else 0,
        began=line.began,
        seconds=end / 1e9,
        made=sum(program.level in _MADE for program in line.programs),
        found=found,
        lanes=lanes,
        pieces=pieces,
        programs=[_item(program, waited.get(program.number, 0)) for program in line.programs],
        transfers=[
            Transfer(kind, total.times, total.nanoseconds / 1e9, total.sent, total.received)
            for kind, total in sorted(dict(line.totals).items())
        ],
        report=report,
        second_run=None if line.dropped else SecondRun((end - made) / 1e9, made / 1e9),
        dropped=line.dropped,
    )


def _drawn(threads: Sequence[str], spans: Iterable[Span]) -> tuple[list[Lane], list[Piece]]:
    """Return the lanes that have work, and their work: that of each thread, and below that of the daemon for it."""
    lanes, pieces = list[Lane](), list[Piece]()
    for number, name in enumerate(threads):
        for in_daemon in (False, True):
            own = nested([span for span in spans if (span.lane, span.in_daemon) == (number, in_daemon)])
            if own:
                depth = 1 + max(depth for _, depth in own)
                pieces += [_piece(len(lanes), depth, span) for span, depth in own]
                lanes.append(Lane(f"daemon, for {name}" if in_daemon else name, number, in_daemon, depth))
    return lanes, pieces


def _piece(lane: int, depth: int, span: Span) -> Piece:
    program = -1 if span.program is None else span.program
    return Piece(lane, depth, span.kind, span.start / 1e9, (span.end - span.start) / 1e9, span.label, program)


def _item(record: ProgramRecord, waited: int) -> ProgramItem:
    return ProgramItem(
        program=record.label,
        where=_text(record.where),
        level=record.level or "here",
        why=record.why,
        differences=record.differences,
        waited=waited / 1e9,
        steps=record.seconds,
        saved=record.saved,
        calls=record.calls,
        queued=record.queued,
        call_seconds=record.nanoseconds / 1e9,
        sent=record.sent,
        received=record.received,
    )


def _text(path: str) -> str:
    """Return a path as text that can be encoded: its bytes may be no UTF-8."""
    return path.encode(errors="backslashreplace").decode()


def _skipped(
    spans: Iterable[Span], programs: Sequence[ProgramRecord], keeps_compilations: bool
) -> list[tuple[int, int]]:
    """Return when the program only waited for what a second run finds."""
    found = []
    for span in spans:
        if span.in_daemon:
            continue
        program = None if span.program is None else programs[span.program]
        is_made = program is not None and program.level in _MADE
        steps = _COMPILING if program is not None and program.is_traced_each_time else _MAKING
        if (is_made and span.kind in steps) or (span.kind == COMPILE and keeps_compilations):
            found.append((span.start, span.end))
    return found


def _nanoseconds(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
