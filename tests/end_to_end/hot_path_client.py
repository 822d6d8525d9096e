"""A client whose program has no jax, at a daemon of its own: prints {case: functions in Python per call}.

Whosever they are: those of the standard library cost as much. Medians, as in `hot_path_worker`.
"""

import itertools
import json
import os
import statistics
import sys
from typing import Any

import numpy as np

import jitclient
from jitclient.session import process

CALLS = 64
os.environ.update({f"OF_NO_INTEREST_{n}": "0" for n in range(200)})
called = 0


def count(frame: Any, event: str, _: Any) -> None:
    global called
    called += event == "call"


def measured(call: Any) -> float:
    call()
    after = []
    with process.session():  # held, so that nothing happens meanwhile
        sys.setprofile(count)
        for _ in range(CALLS):
            after.append(called)
            call()
        sys.setprofile(None)
    return statistics.median(b - a for a, b in itertools.pairwise(after))


small = jitclient.jit(lambda x, y, z: x + y + z)
step = jitclient.jit(lambda x: x * 0.5)
x = np.ones((8, 8), np.float32)
kept = [jitclient.device_put(x)]


def chain() -> None:
    kept[0] = step(kept[0])


found = {"small": measured(lambda: np.asarray(small(x, x, x))), "resident": measured(chain)}
assert "jax" not in sys.modules
print(json.dumps(found))
