"""Freed memory is kept during work and returned to the system afterwards."""

import json
import subprocess
import sys

import pytest

from jitserver.system import malloc
from jitserver.system.malloc import IDLE_SECONDS, IdleTrim

PROGRAM = """
import json, sys, threading
import numpy as np
from jitserver.system import malloc

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def work():
    for _ in range(3):
        np.ones(64 << 20, np.uint8)

if sys.argv[1] == "keep":
    malloc.keep_freed()
before = resident()
thread = threading.Thread(target=work)
thread.start()
thread.join()
worked = resident()
malloc.trim_freed_memory()
print(json.dumps([worked - before, resident() - before]))
"""


def growth(how: str) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    worked, rested = json.loads(done.stdout)
    return worked, rested


@pytest.mark.slow
def test_freed_memory_is_kept_and_then_returned() -> None:
    assert growth("as it is")[0] < 16 << 20
    worked, rested = growth("keep")
    assert worked > 60 << 20  # 64, less pages that the system took meanwhile
    assert rested < 16 << 20


def test_memory_is_returned_once_after_each_period_of_work() -> None:
    given: list[float] = []
    keeper = IdleTrim(lambda: given.append(now))
    for now in (0.0, IDLE_SECONDS, 2 * IDLE_SECONDS):
        keeper.tick(0, now)
    assert given == [IDLE_SECONDS]  # the start is work
    given.clear()
    start = 1000.0
    for now, work in ((start, 5), (start + 1, 9), (start + IDLE_SECONDS, 9)):
        keeper.tick(work, now)
    assert given == []
    for now in (start + 1 + IDLE_SECONDS, start + 2 + IDLE_SECONDS, start + 3 * IDLE_SECONDS):
        keeper.tick(9, now)
    assert given == [start + 1 + IDLE_SECONDS]
    keeper.tick(10, start + 5 * IDLE_SECONDS)
    keeper.tick(10, now := start + 7 * IDLE_SECONDS)
    assert len(given) == 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda _: object())
    malloc.keep_freed()
    malloc.trim_freed_memory()
