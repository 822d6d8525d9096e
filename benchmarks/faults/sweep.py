"""The sweep: each call of each kind fails once, in the client, and in the daemon, its end and its start included."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import shim
from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, stage

ALL = 2000
"""More calls of a kind than a turn makes."""


def sweep(folder: Path, stride: int, most: int, kinds: tuple[str, ...]) -> Iterator[Result]:
    """The results of each kind of call; with a `stride`, only some calls of it fail, and at most so many of them."""
    library = shim.build(folder)
    with stage(folder, library) as there:
        there.turn()  # the first one compiles what each turn needs
        for call in kinds:
            for where, fails in _WHERE.items():
                result = Result(f"{call} in the {where}")
                for nth in range(1, 1 + stride * most, stride):
                    if not fails(there, call, nth, result):
                        break
                yield result


def _in_client(there: Stage, call: str, nth: int, result: Result) -> bool:
    told = there.turn(call, nth)
    result.add(f"{call} {nth}", told, bool(told["failed"]))
    return bool(told["failed"])


def _in_daemon(there: Stage, call: str, nth: int, result: Result) -> bool:
    there.controls["daemon"].arm(call, nth)
    told = there.turn()
    failed = there.controls["daemon"].disarm()
    there.serve()
    result.add(f"{call} {nth}", told, failed)
    return failed


def _in_end(there: Stage, call: str, nth: int, result: Result) -> bool:
    there.turn()
    there.controls["daemon"].arm(call, nth)
    status = there.stop()
    failed = there.controls["daemon"].disarm()
    there.serve()
    told = there.turn()
    if status is None:
        told["steps"]["stop"] = "hang"
    result.add(f"{call} {nth}", told, failed)
    return failed


def _in_start(there: Stage, call: str, nth: int, result: Result) -> bool:
    there.stop()
    is_over = there.serve_failing(call, nth)
    failed = there.controls["daemon"].disarm()
    there.serve()
    told = there.turn()
    if not is_over:
        told["steps"]["start"] = "hang"
    result.add(f"{call} {nth}", told, failed)
    return failed


_WHERE = {"client": _in_client, "daemon": _in_daemon, "daemon's end": _in_end, "daemon's start": _in_start}
