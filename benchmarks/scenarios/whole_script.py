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

from benchmarks.crew import Crew, crew
from benchmarks.measure import Effort, Samples
from benchmarks.processes import TOP, output, temporary_folder
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import disk_cache, ours, plain_jax

PROGRAM = TOP / "benchmarks" / "programs" / "classifier.py"
SCRIPTS = sorted((TOP / "examples" / "scripts").glob("*.py"))
SMALLEST = TOP / "examples" / "scripts" / "mlp.py"
_ARITHMETIC = "the script's arithmetic"
_RUN = ("-m", "jitserver", "run", "--verbose")
_RUNS_UNTIL_ONE_IS_READY = 20


def rows(effort: Effort) -> Iterator[Row]:
    """A script that says how long its arithmetic takes, and those of the examples; each run is a helper's."""
    with (
        crew((ours, disk_cache, plain_jax), clients=0) as contenders,
        temporary_folder() as folder,
        contextlib.ExitStack() as stack,
    ):
        if OURS in contenders.environments:
            stack.callback(_end_helpers, Path(contenders.environments[OURS]["XDG_RUNTIME_DIR"]))
        target = Target(0.35, beyond=_ARITHMETIC)
        samples = _compared(contenders, PROGRAM, folder, effort, 9)
        totals = samples.of(lambda sample: sample["total"])
        if plain_jax.NAME in samples.taken:
            totals.taken[_ARITHMETIC] = [sample["arithmetic"] for sample in samples.taken[plain_jax.NAME]]
        yield Row("a script with flax and optax: command to exit", totals, (target,))
        for program in [SMALLEST] if effort.quick else SCRIPTS:
            totals = _compared(contenders, program, folder, effort, 5).of(lambda sample: sample["total"])
            if plain_jax.NAME in totals.taken:
                env, rounds = contenders.environments[plain_jax.NAME], len(totals.taken[plain_jax.NAME])
                totals.taken[_ARITHMETIC] = [_arithmetic_of(program, env) for _ in range(rounds)]
            yield Row(f"the example {program.name}: command to exit", totals, (target,))


def _compared(contenders: Crew, program: Path, folder: Path, effort: Effort, rounds: int) -> Samples:
    takers = {
        name: functools.partial(_run_by_helper if name == OURS else run, program, contenders.environments[name], folder)
        for name in contenders.workers
    }
    if OURS in takers and not contenders.attempt(OURS, takers[OURS]):
        del takers[OURS]
    label = f"{program.name} in fresh processes"
    return contenders.take_turns(label, takers, effort.rounds(rounds), effort.warm(1))


def run(program: Path, env: dict[str, str], folder: Path, launcher: tuple[str, ...] = ()) -> dict[str, Any]:
    """Seconds of one run, and if it says so, those of them that its arithmetic takes once it is compiled."""
    start = time.perf_counter()
    command = [sys.executable, *launcher, str(program)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    total = time.perf_counter() - start
    if done.returncode or done.stderr:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    if program is not PROGRAM:
        return {"total": total}
    found = json.loads(done.stdout)
    assert found["losses"][-1] < found["losses"][0], "the training did not train"
    return {"total": total, "arithmetic": len(found["seconds"]) * statistics.median(found["seconds"])}


def _arithmetic_of(program: Path, env: dict[str, str]) -> float:
    return float(output(["-m", "benchmarks.programs.again", str(program)], env, TOP))


def _run_by_helper(program: Path, env: dict[str, str], folder: Path) -> dict[str, Any]:
    """The first run that a helper takes: while one begins again, without what it must not import, commands run in
    processes of their own.
    """
    for _ in range(_RUNS_UNTIL_ONE_IS_READY):
        with contextlib.suppress(RuntimeError):
            return run(program, env, folder, _RUN)
        time.sleep(0.5)
    return run(program, env, folder, _RUN)


def _end_helpers(runtime: Path) -> None:
    for lock in (runtime / "jitserver").glob("run-*.lock"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(lock.read_text())
            os.kill(pid, signal.SIGTERM)
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.02)
