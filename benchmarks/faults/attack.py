"""An attack: valid frames with extreme counts, depths, sizes and orders, from peers that keep to no other rule.

While each one is served, a healthy client calls; its longest call, and the memory that the daemon takes, are limited.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import jitclient
from benchmarks.faults import random_messages
from benchmarks.faults.attacks import ATTACKS, MAX_CALL_SECONDS
from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, stage
from jitclient.errors import ArrayBudgetExceeded

_OPTIONS = ("--array-memory", "128")
MAX_GROWTH_BYTES = 200 << 20
"""Maximum memory that one attack takes."""

_SECONDS = 60.0
"""Maximum time of an attack."""


def attack(folder: Path) -> Iterator[Result]:
    """Yield the result of each attack."""
    with stage(folder, options=_OPTIONS) as there:
        session = jitclient.connect(f"unix:{there.path}")
        _add(np.float32(0))
        for name, act in itertools.chain(ATTACKS.items(), random_messages.attacks()):
            yield _attacked(there, name, act)
        session.close()


@jitclient.jit
def _add(x: Any) -> Any:
    return x + 1


def _attacked(there: Stage, name: str, act: Callable[[Path], None]) -> Result:
    result = Result(f"attack by {name}", injections=1)
    assert there.daemon is not None
    process = Path(f"/proc/{there.daemon.pid}")
    (process / "clear_refs").write_text("5")  # the peak is that since now
    before = _bytes(process, "VmRSS")
    attacker = threading.Thread(target=_until_cut_off, args=(act, there.path, result), daemon=True)
    attacker.start()
    deadline, longest = time.monotonic() + _SECONDS, 0.0
    while attacker.is_alive() and time.monotonic() < deadline:
        start = time.monotonic()
        with contextlib.suppress(ArrayBudgetExceeded):  # an attacker may hold all of it, as on a device
            result.check(float(_add(np.float32(1))) == 2, "a value is wrong")
        longest = max(longest, time.monotonic() - start)
    grown = _bytes(process, "VmHWM") - before
    result.check(longest < MAX_CALL_SECONDS, f"the longest call took {longest:.1f} s")
    result.check(grown < MAX_GROWTH_BYTES, f"the daemon took {grown >> 20} MiB")
    result.figures = {"longest call, s": longest, "memory, MiB": grown / (1 << 20)}
    return result


def _until_cut_off(act: Callable[[Path], None], path: Path, result: Result) -> None:
    try:
        act(path)
    except AssertionError as error:
        result.check(False, str(error))
    except Exception:  # it is cut off, or refused
        pass


def _bytes(process: Path, name: str) -> int:
    return int((process / "status").read_text().partition(f"{name}:")[2].split()[0]) << 10
