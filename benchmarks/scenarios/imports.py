"""The cost of an import in a fresh process, from the start of Python to its end."""

import functools
from collections.abc import Iterator

from benchmarks.measure import Effort, interleave
from benchmarks.processes import environment, temporary_folder, wall_time
from benchmarks.result import OURS, Row, Target

_NUMPY = "numpy"
_USED = "jitclient.jit"
PROGRAMS = {
    OURS: "import numpy, jitclient",
    _USED: "import numpy, jitclient; jitclient.jit",
    _NUMPY: "import numpy",
    "numpy, rpyc": "import numpy, rpyc",
    "jax": "import jax",
    "nothing": "pass",
}


def rows(effort: Effort) -> Iterator[Row]:
    """The row of DESIGN's table; the program that names `jit` is held to the same."""
    with temporary_folder() as folder:
        env = environment(folder)
        takers = {
            name: functools.partial(wall_time, ["-P", "-c", program], env, folder) for name, program in PROGRAMS.items()
        }
        samples = interleave(takers, effort.rounds(21), "imports")
    targets = (Target(0.040, beyond=_NUMPY), Target(0.040, beyond=_NUMPY, of=_USED))
    yield Row("import jitclient and numpy, a whole process", samples, targets)
