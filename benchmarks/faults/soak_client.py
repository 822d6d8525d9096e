"""The programs of the soak: a long one, which does so many operations for each line of its input, and short ones."""

import contextlib
import gc
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

import jitclient
from benchmarks.faults.soak import anonymous_mib

_BATCHES, _BATCH = 10, 40


@jitclient.jit
def count(x: Any) -> Any:
    """Return the next number."""
    return x + 1


@jitclient.jit
def calls_back(x: Any) -> Any:
    """Return the number after the next one. The callback calls a jitted function."""
    return jax.pure_callback(lambda v: np.asarray(count(v)), x, x) + 1


@jitclient.jit
def fails(x: Any) -> Any:
    """Raise an exception."""
    raise ValueError("as it should")


class Long:
    """The long program."""

    def __init__(self) -> None:
        self._numbers = iter(range(1, 1 << 60))
        self._kept = list[Any]()
        self._batch, self._call_us = 0, 0.0

    def turn(self, share: float, leak: bool) -> dict[str, Any]:
        """Do a share of a thousand operations; return what was wrong, and what was measured."""
        operations, errors, self._batch = 0, list[str](), math.ceil(_BATCH * share)
        for times, act in self._acts(leak):
            for _ in range(math.ceil(times * share)):
                try:
                    act()
                except Exception as error:
                    errors.append(f"{act.__name__}: {type(error).__name__}: {error}")
                operations += 1
        gc.collect()
        return {
            "operations": operations + _BATCHES * self._batch - 1,
            "errors": errors,
            "memory_mib": anonymous_mib(os.getpid()),
            "call_us": self._call_us,
        }

    def _acts(self, leak: bool) -> Iterator[tuple[int, Callable[[], None]]]:
        yield 1, self._calls
        yield 425, self._queued
        yield 50, self._leaky if leak else self._function
        yield 50, self._array
        yield 50, self._callback
        yield 20, self._error
        yield 5, self._fork
        yield 1, self._name

    def _calls(self) -> None:
        taken = list[float]()
        for _ in range(_BATCHES):
            start = time.perf_counter()
            for number in range(self._batch):
                assert float(count(np.float32(number))) == number + 1
            taken.append(time.perf_counter() - start)
        self._call_us = min(taken) / self._batch * 1e6

    def _queued(self) -> None:
        x = count(np.float32(0))
        for _ in range(3):
            x = count(x)
        assert float(x) == 4

    def _function(self) -> None:
        number = float(next(self._numbers))
        assert float(jitclient.jit(lambda x: x * 2 + number)(np.float32(3))) == 6 + number

    def _leaky(self) -> None:
        self._kept.append(jitclient.device_put(np.full(1 << 19, next(self._numbers), np.float32)))

    def _array(self) -> None:
        x = jitclient.device_put(np.full(100_000, next(self._numbers) % 1000, np.int32))
        assert np.array_equal(np.asarray(count(x)), np.asarray(x) + 1)

    def _callback(self) -> None:
        assert float(calls_back(np.float32(1))) == 3

    def _error(self) -> None:
        with contextlib.suppress(ValueError):
            fails(np.float32(1))
            raise AssertionError("no exception")

    def _fork(self) -> None:
        child = os.fork()
        if not child:
            os._exit(float(count(np.float32(7))) != 8)
        assert os.waitpid(child, 0)[1] == 0

    def _name(self) -> None:
        number = float(next(self._numbers))
        assert float(np.asarray(jitclient.keep("soak", np.full(1000, number)))[7]) == number


def short(kind: str, number: int) -> None:
    """Call a function of its own and a known one, say whether the values are right, and end in a way."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background of a shell ignores it
    x = jitclient.jit(lambda x: x - number)(np.float32(1))
    print("right" if (float(x), float(count(x))) == (1 - number, 2 - number) else "wrong", flush=True)
    if kind == "raises":
        raise ValueError("as it should")
    if kind != "ends":
        sys.stdin.read()


def main() -> None:
    """Be the program that the arguments name."""
    if sys.argv[1] == "short":
        short(sys.argv[2], int(sys.argv[3]))
        return
    program = Long()
    for words in sys.stdin:
        print(json.dumps(program.turn(**json.loads(words))), flush=True)


if __name__ == "__main__":
    main()
