"""The process of a contender's client: told over a socket what to prepare, and when to take a sample."""

import importlib
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.rivals import Caller

Once = Callable[[], Any]
Workload = Callable[..., Once]
"""Takes a `Caller` and sizes; returns what takes one sample."""


def main(rival: str, fd: int) -> None:
    """Connect as a rival's client, then take workloads and samples until the other side has gone."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what a rival has started ends with us
    connection = Connection(fd)
    try:
        with importlib.import_module(rival).connect() as caller:
            connection.send((None, ""))
            _serve(connection, caller)
    except Exception:
        connection.send((None, traceback.format_exc()))
        raise


def _serve(connection: Connection, caller: Caller) -> None:
    once: Once | None = None
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        try:
            if message is None:
                assert once is not None, "nothing is prepared"
                connection.send((once(), ""))
            else:
                workload, sizes = message
                once = None  # frees the arrays of the one before
                once = workload(caller, **sizes)
                connection.send((None, ""))
        except Exception:
            connection.send((None, traceback.format_exc()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
