"""An array there and back, `x + 1`, numpy in and numpy out, from 1 KiB to 256 MiB."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.crew import Crew, crew
from benchmarks.measure import Effort
from benchmarks.result import Row, Target
from benchmarks.rivals import Caller, bare_socket, dask_actor, ours, plain_jax, ray_actor, tutorial
from benchmarks.worker import Once

RIVALS = (ours, bare_socket, plain_jax, tutorial, ray_actor, dask_actor)
KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 256 * MIB)
TARGETS = {**dict.fromkeys((MIB, 2 * MIB, 4 * MIB, 8 * MIB), 1.0), 128 * MIB: 0.4}

_TUTORIAL_MOST = 4 * MIB  # at 16 MiB each call takes more than a second
_TUTORIAL_TRIES = 128 * MIB  # rpyc gives up after 30 s: that is its figure


def plus_one(x: Any) -> Any:
    """The work of one pass over memory."""
    return x + 1


def there_and_back(caller: Caller, size: int, seconds: float) -> Once:
    """Seconds for one call. The array changes before each, so that no rival profits from having seen it."""
    add, x = caller.jit(plus_one), np.random.default_rng(0).random(size // 4, np.float32)  # zeros would compress
    np.testing.assert_array_equal(caller.look(add(x)), x + 1)

    def once() -> float:
        total, calls = 0.0, 0
        while total < seconds:
            x[calls % len(x)] += 1
            before = time.perf_counter()
            result = caller.look(add(x))
            total += time.perf_counter() - before
            calls += 1
            assert result[-1] == x[-1] + 1, "a wrong answer"
            del result
        return total / calls

    return once


def rows(effort: Effort) -> Iterator[Row]:
    """The rows of DESIGN's table on large arrays, and how cost grows between them."""
    sizes = effort.sizes(*SIZES)
    with crew(RIVALS) as contenders:
        for size in sizes:
            samples = _compare(contenders, size, effort)
            limit = TARGETS.get(size)
            targets = (Target(limit, times=plain_jax.NAME),) if limit else ()
            yield Row(f"{_text(size)} there and back, x + 1", samples, targets, at=size)


def _compare(contenders: Crew, size: int, effort: Effort) -> Any:
    names = [name for name in contenders.workers if name != tutorial.NAME or _takes_part(size)]
    return contenders.compare(
        f"{_text(size)} there and back",
        there_and_back,
        effort.rounds(15),
        only=names,
        size=size,
        seconds=effort.seconds(0.1),
    )


def _takes_part(size: int) -> bool:
    """Whether the tutorial's design is asked at this size: it takes too long to be asked at each."""
    return size <= _TUTORIAL_MOST or size == _TUTORIAL_TRIES


def _text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
