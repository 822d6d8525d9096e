"""The first call in a fresh process: a training step of a 24-layer transformer that an earlier process has made."""

import functools
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.crew import crew
from benchmarks.measure import Effort, Samples
from benchmarks.processes import TOP, last_line, temporary_folder
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import disk_cache, ours, plain_jax

PROGRAM = TOP / "benchmarks" / "programs" / "transformer.py"
_SCRIPT = "the script's own part and one step"
_STEPS = 6


def rows(effort: Effort, depth: int = 24) -> Iterator[Row]:
    """The rows of DESIGN's table on a rerun, with a transformer of `depth` layers."""
    layers, width = effort.one(depth, 1), effort.one(256, 16)
    with crew((ours, disk_cache, plain_jax), clients=0) as contenders, temporary_folder() as folder:
        takers = {
            name: functools.partial(run, "jitclient" if name == OURS else "jax", layers, width, env, folder)
            for name, env in contenders.environments.items()
        }
        samples = contenders.take_turns("transformer in fresh processes", takers, effort.rounds(5))
    text = f"{layers}-layer transformer step"
    beyond = samples.of(lambda sample: sample["first"] - sample["steady"])
    targets = (Target(0.3), Target(0.1, times=disk_cache.NAME))
    yield Row(f"{text}: first call of a fresh process, beyond a steady call", beyond, targets)
    yield Row(f"{text}: process start to first result", _with_the_script(samples), (Target(0.4, beyond=_SCRIPT),))
    yield Row(f"{text}: a steady call", samples.of(lambda sample: sample["steady"]))


def run(
    jit: str,
    layers: int,
    width: int,
    env: dict[str, str],
    folder: Path,
    program: Path = PROGRAM,
    options: tuple[str, ...] = (),
) -> dict[str, float]:
    """Seconds of what, in one run of the program."""
    start = time.time()
    times: Any = last_line(["-P", str(program), jit, str(layers), str(width), str(_STEPS), *options], env, folder)
    ends, losses = times["ends"], times["losses"]
    assert losses[-1] < losses[0], "the training did not train"
    return {
        "setup": times["ready"] - start,
        "first": ends[0] - times["ready"],
        "steady": statistics.median(end - before for before, end in itertools.pairwise(ends)),
        "total": ends[0] - start,
        "load": times["load"],
    }


def _with_the_script(samples: Samples) -> Samples:
    """Totals, and beside them what the script needs with no server and nothing to compile: imports, set-up, a step."""
    totals = samples.of(lambda sample: sample["total"])
    if plain_jax.NAME in samples.taken:
        runs = samples.taken[plain_jax.NAME]
        totals.taken[_SCRIPT] = [run["setup"] + run["steady"] for run in runs]
    return totals
