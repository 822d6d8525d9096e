"""The cost of the caller's own trace, which decides: on a miss, and at the look-up of a program with a manifest."""

import functools
import json
import resource
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Effort, Samples, interleave
from benchmarks.processes import environment, last_line, temporary_folder
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import ours, plain_jax
from benchmarks.scenarios.capture import PROGRAMS
from benchmarks.scenarios.first_call import run

UNCOMPARED = "without the own trace"
_LIBRARIES = "a linen model and an optax chain"

_LOOK_UP = textwrap.dedent("""
    import json, sys, time
    import jax, numpy as np
    import benchmark_captured as program
    from jitclient.calls.identity import manifests_of
    from jitclient.capture.manifest import observed

    if len(sys.argv) == 1:
        x = np.ones((4, 8), np.float32)
        params = program.model.init(jax.random.key(0), x)
        with observed() as observation:
            jax.jit(program.fun).trace(params, program.optimizer.init(params), x, np.ones((4, 1), np.float32))
        print(json.dumps(observation.reads().names))
    else:
        names = tuple(json.loads(sys.argv[1]))
        start = time.perf_counter()
        manifests_of([names])
        print(json.dumps(time.perf_counter() - start))
""")


def rows(effort: Effort) -> Iterator[Row]:
    """The rows of DESIGN's table on the own trace."""
    layers, width = effort.one(24, 1), effort.one(256, 16)
    takers: dict[str, Callable[[], Any]] = {
        OURS: functools.partial(_missed, "jitclient", layers, width, JITSERVER_VERIFY="new"),
        UNCOMPARED: functools.partial(_missed, "jitclient", layers, width, JITSERVER_VERIFY="off"),
        plain_jax.NAME: functools.partial(_missed, "jax", layers, width),
    }
    samples = interleave(takers, effort.rounds(5), "misses", effort.warm(1))
    text = f"{layers}-layer transformer step that is in no cache"
    targets = (Target(1.1, times=UNCOMPARED),)
    yield Row(f"{text}: first call", samples.of(lambda sample: sample["first"]), targets)
    yield Row(f"{text}: CPU time of client and daemon", samples.of(lambda sample: sample["cpu"]))
    yield _row_of_a_look_up(effort)


def _missed(jit: str, layers: int, width: int, **env: str) -> dict[str, float]:
    """Run the program once beside a daemon with an empty cache."""
    before = _cpu_seconds()
    with temporary_folder() as folder, ours.serve(folder) as served:
        found = run(jit, layers, width, environment(folder, **served, **env), folder)
    return {**found, "cpu": _cpu_seconds() - before}


def _cpu_seconds() -> float:
    """CPU seconds of the processes that we started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row_of_a_look_up(effort: Effort) -> Row:
    with temporary_folder() as folder:
        (folder / "benchmark_captured.py").write_text(PROGRAMS[_LIBRARIES])
        (folder / "look_up.py").write_text(_LOOK_UP)
        names = _printed(folder)
        takers = {OURS: functools.partial(_printed, folder, json.dumps(names))}
        samples: Samples = interleave(takers, effort.rounds(11), "look-ups", effort.warm(1))
    what = f"look-up of a function with {_LIBRARIES}: the state of {len(names)} names, once per process"
    return Row(what, samples, (Target(0.002),))


def _printed(folder: Path, *arguments: str) -> Any:
    return last_line(["look_up.py", *arguments], environment(folder), folder)
