"""A soak: whatever is asked of a daemon, and for how long, it stays as small and its calls as fast as they were.

A long program makes functions, arrays, callbacks, errors and forked children beside its calls; short programs come and
go. The daemon has small limits, and a disk that works, that is full, or none. After each thousand operations of the
long program, a sample is taken; a quantity that rises from sample to sample fails the soak.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import resource
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.client import DEADLINE_SECONDS
from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, stage
from jitclient.core.settings import Settings
from jitclient.session.handshake import ask
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb

_OPTIONS = ("--program-memory", "24", "--array-memory", "64", "--shared-memory", "64")

DISKS = {"with a small disk": "8", "with a full disk": "8", "without a disk": "0"}
"""The daemon's limit of the disk in MiB, by the name of a setting."""

_FULL_FROM = 3
"""Sample from which on the full disk is full."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """Quantities after a number of operations: of the daemon, unless they name the program."""

    operations: int
    memory_mib: float
    maps: float
    threads: float
    descriptors: float
    sessions: float
    programs: float
    disk_mib: float
    program_mib: float
    call_us: float
    """Microseconds of a call that fetches its value: the least of several batches, as others use the machine."""


LIMITS = {
    "memory_mib": 3.0,
    "maps": 10.0,
    "threads": 0.2,
    "descriptors": 0.2,
    "sessions": 0.1,
    "programs": 1.0,
    "disk_mib": 0.2,
    "program_mib": 3.0,
    "call_us": 20.0,
}
"""Growth per thousand operations that fails the soak."""

_MIN_TIMES = 9
"""Number of samples from which on times are judged, which vary most."""


def soak(folder: Path, minutes: float, show: Callable[[str], None]) -> Iterator[Result]:
    """Yield the result of each setting, which takes a third of the minutes."""
    show(line(dataclasses.asdict(Sample(*[0] * len(dataclasses.fields(Sample)))), str))
    for number, name in enumerate(DISKS):
        inner = folder / str(number)
        inner.mkdir()
        yield soaked(inner, name, lambda begun: time.monotonic() - begun < minutes * 60 / len(DISKS), show)


def soaked(
    folder: Path,
    name: str,
    goes_on: Callable[[float], bool],
    show: Callable[[str], None],
    share: float = 1,
    leak: bool = False,
) -> Result:
    """Return the result of one setting.

    Args:
        folder: the folder of the processes.
        name: the setting, one of `DISKS`.
        goes_on: returns whether to go on, given the time of the start.
        show: prints a line.
        share: the part of a thousand operations that the long program does between samples.
        leak: whether the long program keeps an array for each function that it would make.
    """
    result, samples, begun = Result(f"soak {name}"), list[Sample](), time.monotonic()
    show(result.name)
    with stage(folder, options=(*_OPTIONS, "--disk", DISKS[name])) as there, _program(there, "long") as program:
        for number in itertools.count(1):
            if len(samples) == _FULL_FROM and name == "with a full disk":
                _fill_disk(there)
            kind = KINDS[number % len(KINDS)]
            with _program(there, "short", kind, str(number)) as short:
                told = _asked(program, {"share": share, "leak": leak})
                result.check(_ended(short, kind), f"program {number} did not end as one that {kind}")
            if told is None:
                result.hangs += 1
                result.details.append((there.folder / "client.log").read_text()[-2000:])
                break
            result.injections += told["operations"]
            result.raw += len(told["errors"])
            result.details += told["errors"]
            samples.append(_sampled(there, result.injections, told))
            show(line(dataclasses.asdict(samples[-1]), lambda value: f"{value:,.1f}".removesuffix(".0")))
            if not goes_on(begun):
                break
    result.figures = slopes(samples)
    for rising in judged(result.figures):
        result.check(False, rising)
    return result


# ---- judging


def slopes(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the growth of each quantity per thousand operations, after a third of the samples, which fills the limits.

    A quarter of the slopes between any two samples are lower, so that a few samples that are high count for nothing.
    """
    late = samples[len(samples) // 3 :]
    pairs = [(a, b) for a, b in itertools.combinations(late, 2) if b.operations > a.operations]
    if len(pairs) < 2:
        return {}
    return {
        name: statistics.quantiles(
            [(getattr(b, name) - getattr(a, name)) / (b.operations - a.operations) * 1000 for a, b in pairs], n=4
        )[0]
        for name in LIMITS
        if name != "call_us" or len(late) >= _MIN_TIMES
    }


def judged(found: dict[str, float]) -> list[str]:
    """Return a text for each quantity that rises by more than its limit."""
    return [
        f"{name} rises by {found[name]:.2f} for each thousand operations (limit {limit})"
        for name, limit in LIMITS.items()
        if found.get(name, 0.0) > limit
    ]


def line(values: dict[str, Any], text: Callable[[Any], str]) -> str:
    """Return a row of the table of samples; with `str`, the names of its columns."""
    return "".join(f"{name if text is str else text(value):>13}" for name, value in values.items())


# ---- the processes

KINDS = ("ends", "raises", "is interrupted", "is killed")
"""Kinds of short programs."""


@contextlib.contextmanager
def _program(there: Stage, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Yield a program of the soak, which is killed at the end of the context unless it has ended."""
    env = {**there.environment("client"), "JITSERVER_FALLBACK": "error"}
    del env["JITSERVER_VERIFY"]
    with open(there.folder / "client.log", "ab") as log:
        program = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.faults.soak_client", *arguments],
            env=env,
            cwd=there.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def _asked(program: "subprocess.Popen[str]", words: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer of the long program to a line, after a thousand operations; None if there is none in time."""
    assert program.stdin is not None
    program.stdin.write(json.dumps(words) + "\n")
    program.stdin.flush()
    text = _read(program, 10 * DEADLINE_SECONDS)
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found


def _read(program: "subprocess.Popen[str]", seconds: float) -> str:
    assert program.stdout is not None
    return program.stdout.readline() if select.select([program.stdout], [], [], seconds)[0] else ""


def _ended(short: "subprocess.Popen[str]", kind: str) -> bool:
    """Let a short program end as it should; return whether its value was right, and it ended so."""
    if _read(short, DEADLINE_SECONDS) != "right\n":
        return False
    if kind == "is killed":
        short.kill()
    elif kind == "is interrupted":
        short.send_signal(signal.SIGINT)
    statuses = {"ends": (0,), "raises": (1,), "is interrupted": (-signal.SIGINT, 1), "is killed": (-signal.SIGKILL,)}
    try:
        return short.wait(DEADLINE_SECONDS) in statuses[kind]
    except subprocess.TimeoutExpired:
        return False


def _fill_disk(there: Stage) -> None:
    """Make each write of the daemon that extends a file fail, as on a disk without room."""
    assert there.daemon is not None
    resource.prlimit(there.daemon.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def _sampled(there: Stage, operations: int, told: dict[str, Any]) -> Sample:
    assert there.daemon is not None
    process = Path(f"/proc/{there.daemon.pid}")
    counts: Status = ask(Settings(address=f"unix:{there.path}"), Verb.STATUS, None, Status)
    return Sample(
        operations=operations,
        memory_mib=anonymous_mib(there.daemon.pid),
        maps=(process / "maps").read_bytes().count(b"\n"),
        threads=len(os.listdir(process / "task")),
        descriptors=len(os.listdir(process / "fd")),
        sessions=counts.sessions,
        programs=counts.entries,
        disk_mib=sum(path.lstat().st_blocks for path in (there.folder / "xdg_cache_home").rglob("*")) / 2048,
        program_mib=told["memory_mib"],
        call_us=told["call_us"],
    )


def anonymous_mib(pid: int) -> float:
    """Return the memory of a process that is its own."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024
