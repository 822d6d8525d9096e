"""A script on a machine that has nothing, when another machine of the lab has run it: through JAX's cache, and ours."""

import functools
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Effort, interleave
from benchmarks.processes import environment, running, temporary_folder
from benchmarks.result import OURS, Row
from benchmarks.rivals import disk_cache, ours, plain_jax
from benchmarks.scenarios.whole_script import PROGRAM, SCRIPTS, SMALLEST, run


def rows(effort: Effort) -> Iterator[Row]:
    """Scripts under `python -m jitclient` with a daemon that has just started, and under `python`, on new machines."""
    for program in [SMALLEST] if effort.quick else [PROGRAM, *SCRIPTS]:
        with temporary_folder() as store:
            _run_ours(store, program)
            contenders = {
                plain_jax.NAME: functools.partial(_run_plain, {}, program),
                disk_cache.NAME: functools.partial(_run_with_cache, store, program),
                OURS: functools.partial(_run_ours, store, program),
            }
            # The first turn fills JAX's cache.
            samples = interleave(contenders, effort.rounds(5), f"{program.name} on new machines", effort.warm(1))
            yield Row(f"{program.name} on a new machine of the lab: command to exit", samples)


def _run_plain(more: dict[str, str], program: Path) -> float:
    with temporary_folder() as folder:
        return float(run(program, environment(folder, **more), folder)["total"])


def _run_with_cache(store: Path, program: Path) -> float:
    with disk_cache.serve(store) as more:
        return _run_plain(more, program)


def _run_ours(store: Path, program: Path) -> float:
    """Return the seconds of one run on a machine with an empty cache. Its daemon uploads before it ends."""
    with temporary_folder() as folder:
        path = folder / "d.sock"
        env = environment(
            folder,
            JITSERVER_ADDRESS=f"unix:{path}",
            JITSERVER_SHARE=f"file://{store}/ours",
            JITSERVER_SHARE_KEY="a secret of the benchmark",
        )
        serve = ["-P", "-m", "jitserver", "serve", "--address", env["JITSERVER_ADDRESS"]]
        with running(serve, env, folder, lambda: ours.answers(path)):
            return float(run(program, env, folder, ("-m", "jitclient"))["total"])
