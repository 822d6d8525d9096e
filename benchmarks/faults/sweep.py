"""The sweep: each call of each kind fails once, in the client, in the daemon, and in a daemon that is restarted."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import shim
from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, stage

_MOST = 2000  # calls of a kind in a turn


def sweep(folder: Path, stride: int, kinds: tuple[str, ...]) -> Iterator[Result]:
    """The results of each kind of call; with a `stride`, only some calls of it fail."""
    library = shim.build(folder)
    with stage(folder, library) as there:
        there.turn()  # the first one compiles what each turn needs
        for call in kinds:
            for who in ("client", "daemon", "restart"):
                result = Result(f"{call} in the {who}")
                for nth in range(1, _MOST, stride):
                    if not {"client": _in_client, "daemon": _in_daemon, "restart": _in_restart}[who](
                        there, call, nth, result
                    ):
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


def _in_restart(there: Stage, call: str, nth: int, result: Result) -> bool:
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
