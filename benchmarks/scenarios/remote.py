"""An array put and fetched again over TCP, as from another host, where no memory can be shared."""

import time
from collections.abc import Iterator

import numpy as np

from benchmarks.crew import crew
from benchmarks.measure import Effort
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, bare_tcp, ours_over_tcp
from benchmarks.worker import Once

MIB = 1 << 20
SHARE = 0.7
"""Of the bytes that a bare socket copies in a second, so many must be ours."""


def put_and_fetched(caller: Caller, size: int, seconds: float) -> Once:
    """Seconds for an array there and back."""
    x = np.random.default_rng(0).random(size // 4, np.float32)

    def once() -> float:
        total, passes = 0.0, 0
        while total < seconds:
            x[passes % len(x)] += 1
            before = time.perf_counter()
            result = caller.look(caller.put(x))
            total += time.perf_counter() - before
            passes += 1
            assert np.array_equal(result, x), "other bytes"
            del result
        return total / passes

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """DESIGN's share of a bare socket's throughput, as the cost that it stands for."""
    with crew((ours_over_tcp, bare_tcp)) as contenders:
        for size in effort.sizes(MIB, 16 * MIB, 128 * MIB):
            text = f"{size // MIB} MiB put and fetched over TCP"
            samples = contenders.compare(
                text, put_and_fetched, effort.rounds(15), size=size, seconds=effort.seconds(0.1)
            )
            yield Row(text, samples, (Target(1 / SHARE, times=bare_tcp.NAME),), at=size)
