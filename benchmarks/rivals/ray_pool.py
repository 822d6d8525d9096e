"""Ray's `multiprocessing.Pool` of two actors, which cuts a list into four parts for each."""

import contextlib
from collections.abc import Iterator

from benchmarks.rivals import Caller, clusters, no_server, same

NAME = "Ray pool"
NEEDS = ("ray",)
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A Ray of its own on this machine, with a pool."""
    with clusters.ray():
        from ray.util.multiprocessing import Pool

        pool = Pool(2)
        yield Caller(same, spread=pool.map)
        pool.terminate()
