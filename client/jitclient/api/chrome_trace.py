"""Record of a run in Chrome's trace format, which Perfetto and chrome://tracing open.

The "Trace Event Format" has complete events (`"ph": "X"`) and metadata (`"ph": "M"`), with times in microseconds. The
program and the daemon are processes; a thread of the daemon has the work for one thread of the program.
"""

from typing import Any

import msgspec

from jitclient.api.run_record import Lane, Piece, ProgramItem, RunRecord


def encoded(record: RunRecord) -> bytes:
    """Return the trace as a JSON document."""
    events = [*_names(record), *(_event(piece, record) for piece in record.pieces)]
    others = {
        "program": record.name,
        "seconds": record.seconds,
        "made": record.made,
        "found": record.found,
        "second_run": record.second_run,
        "programs": record.programs,
        "transfers": record.transfers,
        "report": record.report,
        "dropped": record.dropped,
    }
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": others})


def _names(record: RunRecord) -> list[dict[str, Any]]:
    names = {record.pid: f"program {record.name}", record.daemon: "jitserver daemon"}
    found = [_metadata("process_name", pid, 0, name) for pid, name in names.items()]
    return found + [_metadata("thread_name", *_place(lane, record), lane.name) for lane in record.lanes]


def _metadata(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _event(piece: Piece, record: RunRecord) -> dict[str, Any]:
    pid, tid = _place(record.lanes[piece.lane], record)
    start = _microseconds(piece.start)
    about = {} if piece.program < 0 else _about(record.programs[piece.program])
    return {
        "ph": "X",
        "name": f"{piece.kind} {piece.label}".strip(),
        "cat": piece.kind,
        "ts": start,
        # The difference of rounded times: rounded durations could reach into the next event.
        "dur": round(_microseconds(piece.start + piece.seconds) - start, 3),
        "pid": pid,
        "tid": tid,
        "args": about,
    }


def _about(item: ProgramItem) -> dict[str, Any]:
    """Return the fields of a program that are not empty."""
    about = {"program": item.program, "where": item.where, "got": item.level, "why": item.why}
    differences = list(item.differences)
    return {name: value for name, value in {**about, "differences": differences}.items() if value}


def _place(lane: Lane, record: RunRecord) -> tuple[int, int]:
    """Return the process and the thread of a lane. Perfetto shows thread 0 as that of no process."""
    return (record.daemon if lane.in_daemon else record.pid), lane.thread + 1


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)
