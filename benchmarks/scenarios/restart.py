"""The first call after a restart of the daemon: the program comes from the disk, when it is asked for or before."""

import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Effort, Samples, interleave
from benchmarks.processes import FINDS_BENCHMARKS, TOP, environment, output, temporary_folder
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import disk_cache, ours
from benchmarks.scenarios.first_call import run

LOADED = TOP / "benchmarks" / "programs" / "loaded.py"
_ASKED, _BEFORE = "loaded when asked for", "loaded before"
_ALONE = "JAX, loading it by itself"
_PATIENCE_SECONDS = 120.0
_DRY_RUN_SECONDS = 10.0


def rows(effort: Effort, depth: int = 24) -> Iterator[Row]:
    """The row of DESIGN's table, both ways, with a transformer of `depth` layers.

    What the disk cache takes includes its trace and lowering; a program that JAX loads by itself has neither.
    """
    layers, width = effort.one(depth, 1), effort.one(256, 16)
    with temporary_folder() as folder, temporary_folder() as theirs, disk_cache.serve(theirs) as env:
        step = functools.partial(run, layers=layers, width=width)
        takers: dict[str, Callable[[], dict[str, float]]] = {
            _ASKED: lambda: _after_restart(folder, functools.partial(step, "jitclient"), "--no-prewarm"),
            _BEFORE: lambda: _after_restart(folder, functools.partial(step, "jitclient")),
            disk_cache.NAME: lambda: step("jax", env=environment(theirs, **env), folder=theirs),
            _ALONE: lambda: _alone(theirs, step),
        }
        samples = interleave(takers, effort.rounds(5), "transformer after restarts", 1 + effort.warm(1))
    loaded = samples.of(lambda sample: sample["load"] + sample["first"] - sample["steady"])
    ready = samples.of(lambda sample: sample["first"] - sample["steady"])
    text = f"{layers}-layer transformer step after a restart, first call beyond a steady one"
    yield Row(f"{text}: {_ASKED}", _of(loaded, _ASKED, disk_cache.NAME, _ALONE), (Target(1.0, times=disk_cache.NAME),))
    yield Row(f"{text}: {_BEFORE}", _of(ready, _BEFORE, _ALONE), (Target(0.3),))


def _alone(folder: Path, step: Callable[..., dict[str, float]]) -> dict[str, float]:
    env = environment(folder, **FINDS_BENCHMARKS)
    return step("jax", env=env, folder=folder, program=LOADED, options=(str(folder / "program"),))


def _after_restart(folder: Path, step: Callable[..., dict[str, float]], *options: str) -> dict[str, float]:
    with ours.serve(folder, *options) as env:
        told = environment(folder, **env)
        if not options:
            _wait_for("restores", told, folder, _PATIENCE_SECONDS)
            _wait_for("dry_runs", told, folder, _DRY_RUN_SECONDS)  # on a slow machine, there is none
        return step(env=told, folder=folder)


def _wait_for(counter: str, env: dict[str, str], folder: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while list(folder.glob("*/jitserver/*/catalog.sqlite")) and time.monotonic() < deadline:
        if json.loads(output(["-P", "-m", "jitserver", "status", "--json"], env, folder))[counter]:
            return
        time.sleep(0.1)


def _of(samples: Samples, which: str, *others: str) -> Samples:
    names = {which: OURS, **{name: name for name in others}}
    taken = {names[name]: values for name, values in samples.taken.items() if name in names}
    return Samples(taken, {names[name]: why for name, why in samples.failed.items() if name in names})
