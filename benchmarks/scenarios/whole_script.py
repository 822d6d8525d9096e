"""A whole script that ran before, from the command to its exit: imports, set-up, arithmetic and end."""

import contextlib
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.crew import crew
from benchmarks.measure import Effort
from benchmarks.processes import TOP, temporary_folder
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import disk_cache, ours, plain_jax

PROGRAM = TOP / "benchmarks" / "programs" / "classifier.py"
_ARITHMETIC = "the script's arithmetic"
_RUN = ("-m", "jitserver", "run", "--verbose")
_WARMING_RUNS = 20


def rows(effort: Effort) -> Iterator[Row]:
    """The row of DESIGN's table on whole scripts; it wants that a helper takes each run."""
    with (
        crew((ours, disk_cache, plain_jax), clients=0) as contenders,
        temporary_folder() as folder,
        contextlib.ExitStack() as stack,
    ):
        if OURS in contenders.environments:
            stack.callback(_end_helpers, Path(contenders.environments[OURS]["XDG_RUNTIME_DIR"]))
            contenders.attempt(OURS, lambda: _warm(contenders.environments[OURS], folder))
        takers = {
            name: functools.partial(run, _RUN if name == OURS else (), contenders.environments[name], folder)
            for name in contenders.workers
        }
        samples = contenders.take_turns("a script in fresh processes", takers, effort.rounds(9))
    totals = samples.of(lambda sample: sample["total"])
    if plain_jax.NAME in samples.taken:
        totals.taken[_ARITHMETIC] = [sample["arithmetic"] for sample in samples.taken[plain_jax.NAME]]
    yield Row("a script with flax and optax: command to exit", totals, (Target(0.35, beyond=_ARITHMETIC),))


def run(launcher: tuple[str, ...], env: dict[str, str], folder: Path) -> dict[str, Any]:
    """Seconds of one run, and those of them that the arithmetic takes once it is compiled."""
    start = time.perf_counter()
    command = [sys.executable, *launcher, str(PROGRAM)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    total = time.perf_counter() - start
    if done.returncode or done.stderr:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    assert found["losses"][-1] < found["losses"][0], "the training did not train"
    return {"total": total, "arithmetic": len(found["seconds"]) * statistics.median(found["seconds"])}


def _warm(env: dict[str, str], folder: Path) -> None:
    """Runs the script until a helper takes it that has imported what it imports."""
    for _ in range(_WARMING_RUNS):
        with contextlib.suppress(RuntimeError):
            run(_RUN, env, folder)
            return
        time.sleep(0.5)
    run(_RUN, env, folder)


def _end_helpers(runtime: Path) -> None:
    for lock in (runtime / "jitserver").glob("run-*.lock"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(lock.read_text())
            os.kill(pid, signal.SIGTERM)
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.02)
