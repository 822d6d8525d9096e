"""Python's own `ProcessPoolExecutor` with two workers, which sends each task by itself."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from benchmarks.rivals import Caller, no_server, same

NAME = "ProcessPoolExecutor"
NEEDS = ()
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """An executor."""
    with ProcessPoolExecutor(2) as pool:
        yield Caller(same, spread=lambda function, items: list(pool.map(function, items)))
