"""A trial: two copies of both packages, a bug planted in one or both, a daemon, and two clients one after the other."""

import compileall
import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..running_daemon import RunningDaemon, run_daemon
from .mutants import TOP, Mutant, mutated
from .reach import is_reached, watch

SIDES = {"both": ("client", "daemon"), "client": ("client",), "daemon": ("daemon",)}
"""Which copies a bug is planted in."""

SECONDS = 120.0
"""How long one process may take for all its programs; without a bug it takes a tenth of that."""

_PACKAGES = ("client/jitclient", "jitserver")
_WORKER = str(Path(__file__).parent / "worker.py")
_NOT_COMPARED = ("name", "warm")
_OF_CALLS = (
    "jitclient.calls.general_path, jitclient.capture.dump, jitclient.capture.results.reader, jitclient.jaxside.tree"
)
"""Modules that a call imports: a bug that breaks an import is found at the first installation of the package."""

Outcomes = dict[str, dict[str, Any]]


@dataclasses.dataclass
class Verdict:
    """Outcome of a planted bug.

    Attributes:
        verdict: `right`, or the worst of what happened: `dead` (the daemon did not start, all values are right),
            `wrong` (a value), `error`, `hang`; or `unimportable`, which was not tried.
        warm: how many programs were found, neither traced nor run locally, in the first process and in the second.
        problems: each a program that went wrong: in which process, how, what was expected, what came.
        seconds: how long it took.
        reached: whether the programs call the function that has it.
    """

    verdict: str
    warm: list[int] = dataclasses.field(default_factory=list)
    problems: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    reached: bool = True


class Bench:
    """Copies of the packages in a folder, and what plain JAX gives for some programs."""

    def __init__(self, folder: Path, programs: Sequence[str]) -> None:
        self.programs = self._tried_programs = list(programs)
        self._folder = folder
        self._home = folder / "home"
        self._watchers: dict[str, Path] = {}
        self._called: set[str] | None = None
        for side in SIDES["both"]:
            for package in _PACKAGES:
                to = folder / side / package
                shutil.copytree(TOP / package, to, ignore=shutil.ignore_patterns("__pycache__"))
                compileall.compile_dir(to, quiet=2)
        self.plain = self._plain()

    def _plain(self) -> Outcomes:
        found, end = self._run("plain", self._folder / "plain.json", {"PYTHONHASHSEED": "0"})
        assert found.keys() == set(self.programs), f"plain JAX: {end}"
        return found

    def try_without(self) -> Verdict:
        """Judge what two processes get without a bug, and note which functions are called. It takes twice as long."""
        calls = self._folder / "calls"
        for side in SIDES["both"]:
            self._watchers[side] = self._folder / f"watch-{side}"
            watch(self._watchers[side], self._folder / side, calls)
        found = self.try_out()
        self._watchers.clear()
        self._called = set(calls.read_text().splitlines())
        return found

    def try_out(self, mutant: Mutant | None = None, sides: str = "both", of: slice = slice(None)) -> Verdict:
        """Plant a bug, or none, and judge what two processes then get of the programs, or of some of them."""
        begun = time.monotonic()
        self._tried_programs = self.programs[of]
        with self._planted(mutant, SIDES[sides]):
            if mutant is not None and "client" in SIDES[sides] and not self._imports(mutant):
                return Verdict("unimportable", seconds=time.monotonic() - begun)
            found = self._tried()
        found.seconds = round(time.monotonic() - begun, 1)
        found.reached = mutant is None or self.reaches(mutant)
        return found

    def reaches(self, mutant: Mutant) -> bool:
        """Whether the programs call the function that a mutant is in, as far as that was noted."""
        return self._called is None or is_reached(mutant, self._called)

    def _tried(self) -> Verdict:
        problems: list[dict[str, Any]] = []
        warm = []
        shutil.rmtree(self._home, ignore_errors=True)  # what an earlier bug left there
        with self._daemon() as daemon:
            address = daemon.address if daemon else f"unix:{self._folder}/no-daemon"
            for number in (1, 2):  # the sets of strings have another order in each
                environment = {"JITSERVER_ADDRESS": address, "PYTHONHASHSEED": str(number)}
                found, end = self._run("served", self._folder / f"served-{number}.json", environment)
                problems += ({"process": number, **problem} for problem in self._problems(found, end))
                warm.append(sum(found[name]["warm"] and self._is_right(name, found[name]) for name in found))
                if end == "hang":
                    break
            if daemon and any(problem["kind"] == "hang" for problem in problems):
                daemon.process.kill()  # it may never end otherwise
        kinds = {problem["kind"] for problem in problems}
        worst = next((kind for kind in ("hang", "error", "wrong") if kind in kinds), "right" if daemon else "dead")
        return Verdict(worst, warm, problems)

    def _problems(self, found: Outcomes, end: str) -> Iterator[dict[str, Any]]:
        for name in self._tried_programs:
            if name in found:
                if not self._is_right(name, found[name]):
                    expected, got = _compared(self.plain[name]), _compared(found[name])
                    kind = "error" if "raises" in got else "wrong"
                    yield {"kind": kind, "program": name, "expected": expected, "got": got}
            elif end:  # the process did not come back from this one, and began none of those after it
                kind = "hang" if end == "hang" else "error"
                yield {"kind": kind, "program": name, "expected": _compared(self.plain[name]), "got": end}
                return

    def _is_right(self, name: str, outcome: dict[str, Any]) -> bool:
        return _compared(outcome) == _compared(self.plain[name])

    @contextlib.contextmanager
    def _planted(self, mutant: Mutant | None, sides: Sequence[str]) -> Iterator[None]:
        """The files change their time of change, too: without that, Python may take the bytecode of before."""
        with contextlib.ExitStack() as undo:
            for side in sides if mutant is not None else ():
                path = self._folder / side / mutant.file
                before, data = path.stat(), path.read_bytes()
                undo.callback(os.utime, path, ns=(before.st_atime_ns, before.st_mtime_ns))
                undo.callback(path.write_bytes, data)
                path.write_text(mutated(mutant))
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
            yield

    def _imports(self, mutant: Mutant) -> bool:
        if not mutant.module.startswith("jitclient"):
            return True
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"import jitclient, {_OF_CALLS}, {mutant.module}; jitclient.jit"],
            env=self._environment("client"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode == 0

    @contextlib.contextmanager
    def _daemon(self) -> Iterator[RunningDaemon | None]:
        """Run a daemon of the one copy, with an empty cache; None if it does not come up."""
        with contextlib.ExitStack() as stack:
            environment = {name: self._environment("daemon")[name] for name in ("PYTHONPATH", *_SETTINGS)}
            running = run_daemon(options=["--no-prewarm", "--drain", "1"], env=environment)
            try:
                daemon = stack.enter_context(running)
            except Exception:
                yield None
                return
            stack.pop_all()
            try:
                yield daemon
            finally:
                with contextlib.suppress(Exception):  # it did not end by itself and was killed
                    running.__exit__(None, None, None)

    def _run(self, how: str, lines: Path, environment: dict[str, str]) -> tuple[Outcomes, str]:
        """Return the outcomes of the programs in a process of the other copy, and how that ended if not well."""
        end = ""
        lines.write_text("")
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.run(
                    [sys.executable, "-P", _WORKER, how, str(lines), *self._tried_programs],
                    env={**self._environment("client"), **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    timeout=SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                end = "hang"
            else:
                output.seek(0)
                said = output.read().decode(errors="replace")
                end = f"ended with status {done.returncode}: {said[-2000:]}" if done.returncode else ""
        return {found["name"]: found for found in map(json.loads, lines.read_text().splitlines())}, end

    def _environment(self, side: str) -> dict[str, str]:
        """Return the environment of a user who has set nothing but the address of the daemon; and hasty compilers."""
        self._home.mkdir(exist_ok=True)
        ours = ("JITSERVER_", "JAX_", "XLA_", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        copy = self._folder / side
        paths = [*filter(None, [self._watchers.get(side)]), copy / "client", copy]
        return {
            **kept,
            **_SETTINGS,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(self._home),
            "JITSERVER_AUTOSTART": "0",
            # Compilations of a process beside the programs are found by the next one.
            "JAX_COMPILATION_CACHE_DIR": str(self._folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }


_SETTINGS = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "JAX_PLATFORMS": "cpu", "JITSERVER_FALLBACK": "local"}


def _compared(outcome: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outcome.items() if name not in _NOT_COMPARED}


@contextlib.contextmanager
def bench(programs: Sequence[str]) -> Iterator[Bench]:
    """A bench in a temporary folder, whose name is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="js-planted-") as folder:
        yield Bench(Path(folder), programs)
