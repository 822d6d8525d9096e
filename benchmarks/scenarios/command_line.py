"""The command line, each command a fresh process, with a daemon and without one."""

import functools
from collections.abc import Iterator

from benchmarks.crew import crew
from benchmarks.measure import Effort, Samples, interleave
from benchmarks.processes import environment, temporary_folder, wall_time
from benchmarks.result import OURS, Row, Target
from benchmarks.rivals import Caller, ours
from benchmarks.scenarios.functions import many_functions
from benchmarks.worker import Once

_COMMANDS = (("status",), ("cache", "ls"))
_NOT_RUNNING = 3
_BARE = "import click"


def some_functions(caller: Caller, count: int) -> Once:
    """Fills the cache, so that there is something to list."""
    return many_functions(caller, count, budget=60.0, seconds=0.0)


def rows(effort: Effort) -> Iterator[Row]:
    """The row of DESIGN's table, for both commands, both ways."""
    with crew((ours,)) as contenders, temporary_folder() as folder:
        contenders.compare("cached functions", some_functions, 1, count=effort.one(20, 2))
        takers = {"bare": functools.partial(wall_time, ["-P", "-c", _BARE], environment(folder), folder)}
        for up, env in (("up", contenders.environments.get(OURS, {})), ("down", environment(folder))):
            for command in _COMMANDS:
                takers[f"{' '.join(command)}, {up}"] = functools.partial(
                    wall_time, ["-P", "-m", "jitserver", *command], env, folder, (0 if up == "up" else _NOT_RUNNING,)
                )
        samples = interleave(takers, effort.rounds(15), "command line")
    for name in list(takers)[1:]:
        yield Row(f"jitserver {name}", _pair(samples, name), (Target(0.150),))


def _pair(samples: Samples, name: str) -> Samples:
    names = {name: OURS, "bare": _BARE}
    taken = {names[each]: values for each, values in samples.taken.items() if each in names}
    return Samples(taken, {names[each]: why for each, why in samples.failed.items() if each in names})
