"""Dask with two worker processes of one thread, which schedules each task by itself."""

import contextlib
from collections.abc import Iterator

from benchmarks.rivals import Caller, clusters, no_server, same

NAME = "Dask"
NEEDS = ("distributed",)
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A Dask cluster of its own."""
    with clusters.dask(workers=2) as client:
        yield Caller(same, spread=lambda function, items: client.gather(client.map(function, items, pure=False)))
