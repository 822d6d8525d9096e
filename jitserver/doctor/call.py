"""A real call from a fresh process, which must not run it locally."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jitserver.doctor.finding import DaemonState, Finding

PROGRAM = Path(__file__).parents[1] / "demo" / "one_call.py"
_SECONDS = 120.0


def call(state: DaemonState) -> Iterator[Finding]:
    """Whether a function can be sent, compiled and run, and how long that takes."""
    if state.status is not None:
        yield _made(str(state.address))


def _made(address: str) -> Finding:
    only_there = {"JITSERVER_ADDRESS": address, "JITSERVER_AUTOSTART": "0", "JITSERVER_FALLBACK": "error"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(PROGRAM)],
            env={**os.environ, **only_there},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("call", "problem", f"no answer within {_SECONDS:.0f} s", "jitserver top; jitserver logs")
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return Finding("call", "problem", f"the call failed: {said[-1]}", "jitserver logs; jitserver restart")
    times = json.loads(done.stdout.splitlines()[-1])
    first, again = times["first"] * 1000, times["again"] * 1e6
    return Finding("call", "ok", f"the first in {first:.0f} ms, with connecting; a later one in {again:.0f} us")
