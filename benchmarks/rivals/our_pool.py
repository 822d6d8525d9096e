"""`jitclient.pool` with two workers on this machine."""

import contextlib
from collections.abc import Iterator

from benchmarks.result import OURS
from benchmarks.rivals import Caller, no_server, same

NAME = OURS
NEEDS = ("distributed", "cryptography")
serve = no_server


@contextlib.contextmanager
def connect() -> Iterator[Caller]:
    """A pool whose workers have started."""
    import jitclient

    with jitclient.pool("local:2") as pool:
        yield Caller(same, spread=lambda function, items: list(pool.map(function, items)))
