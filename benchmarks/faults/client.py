"""A client of the sweep: for each line on its standard input, a fork of it does all that a client does.

A line is a JSON object with the `number` of the turn, and the `call` and its `nth` that is to fail in this process, if
any. The answer is a line of JSON: how each step ended, whether the call has failed, the seconds until the first value
that the daemon computed, and from the last step until the next one.
"""

import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import jitclient
from benchmarks.faults.shim import Control
from jitclient import errors
from jitclient.session import process

DEADLINE_SECONDS = 60.0
"""A turn that takes longer hangs: the client's timeout is 10 s."""

_GOOD_SECONDS = 30.0
_COMPUTES = ("call", "fetch")  # steps whose value the daemon computes
_NAME = "faults"


def steps(number: int) -> dict[str, Callable[[], bool]]:
    """Return the steps of a client; each returns whether its value is right."""
    held: dict[str, Any] = {}
    scale = float(number)  # a program of each turn's own

    @jitclient.jit
    def f(x: Any) -> Any:
        return x * 2 + scale

    def put() -> bool:
        held["x"] = jitclient.device_put(np.full(50_000, 3, np.float32))
        return True

    def keep() -> bool:
        return bool(np.asarray(jitclient.keep(_NAME, np.full(1000, scale)))[5] == scale)

    return {
        "connect": lambda: jitclient.connect() is not None,
        "put": put,
        "call": lambda: float(f(np.float32(1))) == scale + 2,
        "fetch": lambda: bool(np.asarray(f(held.get("x", np.full(50_000, 3, np.float32))))[7] == scale + 6),
        "keep": keep,
    }


def turn(number: int, control: Control, call: str, nth: int) -> dict[str, Any]:
    """Take a turn, in a process of its own."""
    if call:
        control.arm(call, nth)
    begun, first, told = time.monotonic(), None, {}
    for name, step in steps(number).items():
        told[name] = outcome(step)
        if first is None and told[name] == "right" and name in _COMPUTES:
            first = time.monotonic() - begun
    failed = control.disarm() if call else False
    begun = time.monotonic()
    while time.monotonic() < begun + _GOOD_SECONDS:
        if outcome(steps(-number)["call"]) == "right":
            return {"steps": told, "failed": failed, "first": first, "good": time.monotonic() - begun}
        time.sleep(0.02)
    return {"steps": {**told, "afterwards": "hang"}, "failed": failed, "good": _GOOD_SECONDS}


def outcome(step: Callable[[], bool]) -> str:
    """How a step ended: right, local, wrong, typed, or raw for an error that is none of ours."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            is_right = step()
        except (errors.JitserverError, MemoryError) as error:
            return f"typed: {type(error).__name__}: {error}"
        except BaseException as error:
            return f"raw: {type(error).__name__}: {error}"
    if not is_right:
        return "wrong"
    is_local = any("in this process" in str(warning.message) for warning in caught)
    return "local" if is_local or process.session().connection is None else "right"


def forever() -> None:
    """Does all steps again and again until "end" comes in. Says when the daemon has computed the first value, and the
    next one whenever "more" comes in; at the end, what was worst, and when each value came.
    """
    worst, number, answers, is_asked = "right", 1, list[float](), True
    while True:
        if select.select([sys.stdin], [], [], 0)[0]:
            if sys.stdin.readline() != "more\n":
                break
            is_asked = True
        number += 1
        for name, step in steps(number).items():
            begun = time.monotonic()
            end = outcome(step)
            if end == "right" and name in _COMPUTES:
                if is_asked:
                    print("answered", flush=True)
                    is_asked = False
                answers.append(time.monotonic())
            if time.monotonic() - begun > DEADLINE_SECONDS:
                end = "hang"
            if end.partition(":")[0] in ("wrong", "raw", "hang"):
                worst = f"{end} ({name})"
    print(json.dumps({"worst": worst, "answers": answers}))


def main() -> None:
    """Answers one line after another."""
    control = Control(Path(os.environ["FAULTS_CONTROL"]))
    for line in sys.stdin:
        asked = json.loads(line)
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            told = turn(asked["number"], control, asked["call"], asked["nth"])
            os.write(writes, json.dumps(told).encode())
            os._exit(0)
        os.close(writes)
        answered = bool(select.select([reads], [], [], DEADLINE_SECONDS + _GOOD_SECONDS)[0])
        text = os.read(reads, 1 << 16) if answered else b""
        os.close(reads)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        failed = control.disarm()
        died = {"steps": {"process": "raw: died" if answered else "hang"}, "failed": failed, "good": None}
        print(text.decode() or json.dumps(died), flush=True)


if __name__ == "__main__":
    forever() if sys.argv[1:] else main()
