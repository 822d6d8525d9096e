"""A soak: a daemon must not grow with each of thousands of functions, and a planted leak must be noticed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import jitclient
from benchmarks.faults.result import Result
from benchmarks.faults.stage import stage
from jitclient.core.settings import Settings
from jitclient.session.handshake import ask
from jitclient.wire.messages import Status, Verb

LEAK_BYTES = 100_000
"""Bytes that the planted leak leaves on the daemon per function; growth of half of that is noticed. Ten thousand leave
1 GB, which is half of what a soak may take."""

_MANY = 4000  # with fewer, the daemon still warms up
_OPTIONS = ("--program-memory", "16")  # programs soon fill their share, and leave it


def soak(folder: Path, functions: int) -> Iterator[Result]:
    """The results of so many functions, without and with a leak."""
    clean = _soaked(folder, f"soak of {functions:,} functions", functions, 0)
    if functions >= _MANY:
        clean.check(clean.growth < LEAK_BYTES / 2, f"the daemon grew by {clean.growth:,.0f} bytes for each function")
    yield clean
    leaky = _soaked(folder, "soak with a planted leak", functions, LEAK_BYTES)
    leaky.check(leaky.growth > clean.growth + LEAK_BYTES / 2, "the planted leak was not noticed")
    yield leaky


def _soaked(folder: Path, name: str, functions: int, leak: int) -> Result:
    result, held, half = Result(name), list[Any](), 0
    inner = folder / f"leak-{leak}"
    inner.mkdir()
    with stage(inner, options=_OPTIONS) as there:
        session = jitclient.connect(f"unix:{there.path}")
        for number in range(functions):
            result.injections += 1
            result.check(_value(number) == number + 2, f"the value of function {number} is wrong")
            if leak:
                held.append(jitclient.device_put(np.full(leak // 4, number, np.float32)))
            if number == functions // 2:
                half = _memory(there.path)
        result.growth = (_memory(there.path) - half) / (functions - functions // 2)
        session.close()
    return result


def _value(number: int) -> float:
    @jitclient.jit
    def f(x: Any) -> Any:
        return x + number

    return float(f(np.float32(2)))


def _memory(path: Path) -> int:
    found: Status = ask(Settings(address=f"unix:{path}"), Verb.STATUS, None, Status)
    return found.memory_bytes
