"""Ray's `multiprocessing.Pool` of two actors, which cuts a list into four parts for each."""

import contextlib
import os
import tempfile
from collections.abc import Iterator

from benchmarks.processes import FINDS_BENCHMARKS
from benchmarks.rivals import Caller, no_server, same

NAME = "Ray pool"
NEEDS = ("ray",)
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A Ray of its own on this machine, with a pool."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.util.multiprocessing import Pool

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": FINDS_BENCHMARKS},
        _temp_dir=tempfile.gettempdir(),
    )
    try:
        pool = Pool(2)
        yield Caller(same, spread=pool.map)
        pool.terminate()
    finally:
        ray.shutdown()
