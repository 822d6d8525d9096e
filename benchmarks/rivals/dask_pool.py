"""Dask with two worker processes of one thread, which schedules each task by itself."""

import contextlib
import logging
from collections.abc import Iterator

from benchmarks.rivals import Caller, no_server, same

NAME = "Dask"
NEEDS = ("distributed",)
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A Dask cluster of its own."""
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        memory_limit=None,
        silence_logs=logging.CRITICAL,
    )
    with cluster, distributed.Client(cluster) as client:
        yield Caller(same, spread=lambda function, items: client.gather(client.map(function, items, pure=False)))
