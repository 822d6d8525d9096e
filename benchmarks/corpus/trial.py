"""One program on trial: plain, with JAX's own cache, then served twice by a daemon of its own, and what that shows."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus import recording
from benchmarks.corpus.comparing import Outcome, differences, is_identical
from benchmarks.corpus.listing import Program
from benchmarks.corpus.preparing import lay_out
from benchmarks.processes import TOP, environment, output, running, temporary_folder
from benchmarks.rivals import ours

_SECONDS = 600
_HELPER_SECONDS = 120
_COUNTS = ("calls", "traces", "client_traces", "local_runs", "compiles")
_SEEDS = {"daemon": "3", "plain": "1", "cached": "2", "first": "1", "second": "2"}
_SAID = re.compile(r"^jitserver: (.*)$", re.MULTILINE)
_FRESH = re.compile(r"^the program runs in a fresh process: (.*)$")
_RAN_HERE = re.compile(r"^(\S+)  ran in this process in [^(]*\((.*)\)$")
_FOUND = re.compile(r"^\S.*  found in ")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Outcome of a trial.

    Attributes:
        name, kind, lines: of the program.
        right: both served runs did what plain JAX did.
        identical: bit for bit.
        warm: the second process had the daemon run programs, and nothing was traced, or run as `jax.jit` runs it.
        wrong: what differed.
        local: the functions that ran in the client, with the reason.
        why: what the second process had made, with the reason; or why there is no verdict.
        fresh: why the second one did not start from a helper, of `jitserver run`.
        seconds: plain, cached, first, second; from the program's first line to its last. Cached is plain JAX with its
            own cache on the disk, which holds all that the program compiles.
        command_seconds: of the same runs, from the command to its end.
        compiled_here: seconds that JAX compiled in the process, for the same runs.
        counts: of the second process: what the daemon counted.
    """

    name: str
    kind: str = ""
    lines: int = 0
    right: bool = False
    identical: bool = False
    warm: bool = False
    wrong: list[str] = dataclasses.field(default_factory=list)
    local: list[str] = dataclasses.field(default_factory=list)
    why: list[str] = dataclasses.field(default_factory=list)
    fresh: list[str] = dataclasses.field(default_factory=list)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    command_seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    compiled_here: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Run:
    """A process that ran a program.

    Attributes:
        outcome: of the program.
        stderr: its text there.
        report: its times.
        seconds: from the command to its end.
        error: what its traceback says, if it failed.
    """

    outcome: Outcome
    stderr: str
    report: dict[str, Any]
    seconds: float
    error: str = ""


def verdict_on(
    program: Program,
    mirrors: Path | None = None,
    libraries: Sequence[Path] = (),
    preloaded: bool = False,
) -> Verdict:
    """Try a program.

    Args:
        program: the program.
        mirrors: where repositories are, instead of on GitHub.
        libraries: folders with packages that programs need.
        preloaded: whether it is served by `jitserver run`, not by `python -m jitclient`.
    """
    about = Verdict(program.name, program.kind, program.lines)
    with temporary_folder() as folder:
        packages = folder / "site-packages"
        for each in (packages, folder / "program"):
            each.mkdir()
        try:
            script = lay_out(program, folder / "program", packages, mirrors)
        except RuntimeError as error:
            return dataclasses.replace(about, why=[str(error)])
        path = [*map(str, (packages, *libraries, TOP)), *filter(None, [os.environ.get("PYTHONPATH")])]
        place = _Place(program, script, folder, os.pathsep.join(path), preloaded)
        plain = place.run("plain")
        if plain.error:
            return dataclasses.replace(about, why=[f"plain JAX: {plain.error}"])
        place.run("cached")  # fills the cache
        cached = place.run("cached")
        first, second, counted = _twice(place)
    return _judged(about, {"plain": plain, "cached": cached, "first": first, "second": second}, counted)


def _twice(place: "_Place") -> tuple[Run, Run, dict[str, int]]:
    """Run a program in two processes; return the runs, and what the daemon counted in the second."""
    with place.daemon() as counts:
        first = place.run("first")
        place.wait_for_helper()
        second, counted = place.counted(counts)
    return first, second, counted


def _judged(about: Verdict, runs: dict[str, Run], counted: dict[str, int]) -> Verdict:
    served = [runs["first"], runs["second"]]
    wrong = [run.error for run in served if run.error]
    wrong = wrong or [each for run in served for each in differences(runs["plain"].outcome, run.outcome)]
    said = [_SAID.findall(run.stderr) for run in served]
    here = [match for each in said[0] + said[1] if (match := _RAN_HERE.match(each))]
    local = [f"{match[1]}: {match[2]}" for match in here]
    made = [each for each in said[1] if not any(known.match(each) for known in (_RAN_HERE, _FRESH, _FOUND))]
    nothing = [] if counted["calls"] or wrong else ["nothing of it ran on the daemon"]
    cold = counted["traces"] + counted["client_traces"] + counted["local_runs"]
    return dataclasses.replace(
        about,
        right=not wrong,
        identical=not wrong and all(is_identical(runs["plain"].outcome, run.outcome) for run in served),
        warm=not wrong and not nothing and not cold,
        wrong=list(dict.fromkeys(wrong)),
        local=list(dict.fromkeys(local)),
        why=[*nothing, *dict.fromkeys(made)],
        fresh=[match[1] for each in said[1] if (match := _FRESH.match(each))],
        seconds={name: run.report.get("seconds", 0.0) for name, run in runs.items()},
        command_seconds={name: run.seconds for name, run in runs.items()},
        compiled_here={name: run.report.get("compiled_here", 0.0) for name, run in runs.items()},
        counts=counted,
    )


class _Place:
    """Where a program runs: folders, paths and processes."""

    def __init__(self, program: Program, script: Path, folder: Path, path: str, preloaded: bool) -> None:
        self._program = program
        self._script = script
        self._folder = folder
        self._socket = folder / "d.sock"
        self._cache = folder / "cache"
        self._path = path
        self._preloaded = preloaded

    def daemon(self) -> Any:
        """Run a daemon of its own; gives what asks for its counts."""
        return _daemon(self._socket, self._folder, self._environment("daemon"))

    def counted(self, counts: Callable[[], dict[str, int]]) -> tuple[Run, dict[str, int]]:
        """Run the program as the second process; also return what the daemon counted meanwhile."""
        before = counts()
        second = self.run("second")
        after = counts()
        return second, {name: after[name] - before[name] for name in _COUNTS}

    def run(self, how: str) -> Run:
        """Run the program in a fresh process; `how` is plain, cached, first or second."""
        scratch = self._folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        arrays, report = self._folder / "arrays.npz", self._folder / "report"
        for old in (arrays, report):
            old.unlink(missing_ok=True)
        recorded = {recording.ARRAYS: str(arrays), recording.REPORT: str(report)}
        start = time.perf_counter()
        status, printed, stderr = self._ended(how, [str(self._script), *self._program.arguments], scratch, **recorded)
        seconds = time.perf_counter() - start
        if status or not report.exists():
            return Run(Outcome(printed, {}), stderr, {}, seconds, f"status {status}: {_error(stderr)}")
        told = json.loads(report.read_text())
        with np.load(arrays) as saved:
            found = dict(zip(told["names"], [saved[str(number)] for number in range(len(told["names"]))], strict=True))
        return Run(Outcome(printed, found), stderr, told, seconds)

    def wait_for_helper(self) -> None:
        """Wait until a helper has imported what the program imports, unless none may have imported it."""
        empty = self._folder / "empty.py"
        empty.touch()
        deadline = time.monotonic() + _HELPER_SECONDS
        if not self._preloaded or self._program.packages:
            return
        while self._ended("second", [str(empty)], self._folder)[2]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no helper was ready within {_HELPER_SECONDS} s")
            time.sleep(0.5)

    def _ended(self, how: str, program: list[str], folder: Path, **variables: str) -> tuple[int | str, str, str]:
        """Run a command line; returns its status, and what it wrote on stdout and stderr."""
        with open(self._folder / "out", "w+") as out, open(self._folder / "err", "w+") as err:
            try:
                status: int | str = subprocess.run(
                    [sys.executable, *self._launcher(how), *program],
                    check=False,
                    env={**self._environment(how), **variables},
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    timeout=_SECONDS,
                ).returncode
            except subprocess.TimeoutExpired:
                status = f"none: it ran for {_SECONDS} s"
        printed, stderr = ((self._folder / name).read_text(errors="replace") for name in ("out", "err"))
        return status, printed, stderr

    def _launcher(self, how: str) -> list[str]:
        if how in ("plain", "cached"):
            return []
        packages = [word for name in self._program.packages for word in ("--package", name)]
        return ["-m", *(("jitserver", "run", "--verbose") if self._preloaded else ("jitclient",)), *packages]

    def _environment(self, how: str) -> dict[str, str]:
        made = environment(
            self._folder,
            JITSERVER_ADDRESS=f"unix:{self._socket}",
            JITSERVER_FALLBACK="local",
            JITSERVER_CACHE_DIR=str(self._cache),
            JITSERVER_REPORT="lines",
            MPLBACKEND="agg",
            PYTHONPATH=self._path,
        )
        if how == "cached":
            made |= {
                "JAX_COMPILATION_CACHE_DIR": str(self._folder / "jax_cache"),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        if not self._preloaded:  # `jitserver run` has one of its own for all runs
            made["PYTHONHASHSEED"] = _SEEDS[how]
        return made


@contextlib.contextmanager
def _daemon(socket: Path, folder: Path, env: dict[str, str]) -> Iterator[Callable[[], dict[str, int]]]:
    arguments = ["-P", "-m", "jitserver", "serve", "--address", f"unix:{socket}"]
    with running(arguments, env, folder, lambda: ours.answers(socket)):
        yield lambda: json.loads(output(["-P", "-m", "jitserver", "status", "--json"], env, folder))


def _error(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return next(
        (line for line in reversed(lines) if re.match(r"[\w.]*\b[A-Z]\w*(: |$)", line)),
        lines[-1] if lines else "",
    )
