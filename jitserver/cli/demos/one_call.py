"""A program that calls a small function, and prints the duration of the first call and of later calls."""

import json
import time

import numpy as np

import jitclient

CALLS = 100


@jitclient.jit
def one_call(x: np.ndarray) -> np.ndarray:
    return x * 2 + 1


x = np.arange(8, dtype=np.float32)
start = time.perf_counter()
found = np.asarray(one_call(x))
first = time.perf_counter() - start
assert found.tolist() == [1, 3, 5, 7, 9, 11, 13, 15], f"a wrong answer: {found}"
start = time.perf_counter()
for _ in range(CALLS):
    np.asarray(one_call(x))
print(json.dumps({"first": first, "again": (time.perf_counter() - start) / CALLS}))
