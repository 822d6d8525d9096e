"""Checks of the daemon: whether it answers, its devices, and a real call."""

import collections
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jitclient.wire.address import Address
from jitserver.cli.checks.finding import DaemonState, Finding, verdict
from jitserver.cli.common import number
from jitserver.cli.entries import listed

_ACCELERATORS = {"/dev/nvidia0": "an NVIDIA GPU", "/dev/kfd": "an AMD GPU", "/dev/accel0": "an accelerator"}
_ONE_CALL = Path(__file__).parents[1] / "demos" / "one_call.py"
_MAX_REASONS = 3
_CALL_SECONDS, _REMOTE_SECONDS = 120.0, 300.0


def answers(state: DaemonState) -> Finding:
    """Check whether a daemon is running and answers."""
    if state.status is None:
        if state.is_broken:
            return Finding("daemon", "problem", state.reason, state.remedy)
        return Finding(
            "daemon", "warning", f"no daemon is running: {state.reason}", "jitserver start, or doctor --start"
        )
    status = state.status
    return Finding("daemon", "ok", f"pid {status.pid} answers at {state.address} in {state.seconds * 1000:.0f} ms")


def devices(state: DaemonState) -> Iterator[Finding]:
    """Check whether the daemon uses accelerators, if the machine has any."""
    if state.status is None:
        return
    names = state.status.devices
    unused = [what for path, what in _ACCELERATORS.items() if Path(path).exists()]
    fits = not unused or not all(name.startswith("cpu:") for name in names)
    says = ", ".join(names) + ("" if fits else f", although the machine has {unused[0]}")
    do = "pip install 'jitserver[cuda13]' and jitserver restart; or unset JAX_PLATFORMS"
    yield verdict("devices", fits, says, do)


def executables(state: DaemonState) -> Iterator[Finding]:
    """Check whether the executables of most programs could be kept: without them, a new daemon compiles again.

    A few without are usual: the daemon found them by their text.
    """
    if state.status is None:
        return
    here = state.status.packages
    is_current = [
        (entry, all(entry.context.get(name, here[name]) == here[name] for name in here)) for entry in listed("")
    ]
    found = [entry for entry, current in is_current if current]
    reasons = collections.Counter(entry.no_executable for entry in found if entry.no_executable)
    kept = f"those of {len(found) - reasons.total():,} of {len(found):,} programs are kept"
    says = "; ".join([kept, *(f"{count:,} are not: {reason}" for reason, count in reasons.most_common(_MAX_REASONS))])
    do = "nothing, if they compile quickly: a new daemon compiles them again. `jitserver cache ls` marks them"
    yield verdict("executables", 2 * reasons.total() < max(len(found), 1), says, do)
    if others := len(is_current) - len(found):
        says = (
            f"{number(others, 'program')} of other versions of jax, which nothing finds any more: the first to leave a "
        )
        yield Finding("executables", "ok", says + "full cache; `jitserver cache clear` removes all programs")


def call(state: DaemonState) -> Iterator[Finding]:
    """Check whether the daemon compiles and runs a function for a fresh process, and measure the time."""
    if state.status is None:
        return
    settings = {"JITSERVER_AUTOSTART": "0", "JITSERVER_FALLBACK": "error"}
    settings["JITSERVER_ADDRESS"] = str(state.address)
    done = _run([sys.executable, "-P", str(_ONE_CALL)], _CALL_SECONDS, **settings)
    if done is None:
        says = f"no answer within {_CALL_SECONDS:.0f} s"
        yield Finding("call", "problem", says, "jitserver status --calls; jitserver logs")
    elif done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        yield Finding("call", "problem", f"the call failed: {said[-1]}", "jitserver logs; jitserver restart")
    else:
        times = json.loads(done.stdout.splitlines()[-1])
        first, again = times["first"] * 1000, times["again"] * 1e6
        yield Finding(
            "call", "ok", f"first call {first:.0f} ms, including the connection; later calls {again:.0f} us each"
        )


def remote(state: DaemonState) -> Iterator[Finding]:
    """Run all checks on the daemon's own machine, and yield their findings."""
    address = state.address
    assert not isinstance(address, Address)
    rerun = address.shown("jitserver", "doctor")
    done = _run(address.command("jitserver", "doctor", "--json"), _REMOTE_SECONDS)
    if done is None:
        yield Finding("remote", "problem", f"no answer within {_REMOTE_SECONDS:.0f} s", rerun)
        return
    try:
        # Skip any output of the login shell before the JSON.
        checks = json.loads(done.stdout[done.stdout.find("{\n") :])["checks"]
    except ValueError:
        yield Finding("remote", "problem", done.stderr.strip() or f"doctor exited with status {done.returncode}", rerun)
        return
    for found in checks:
        yield Finding(f"remote: {found['check']}", found["level"], found["says"], found["do"])


def _run(command: list[str], seconds: float, **settings: str) -> subprocess.CompletedProcess[str] | None:
    """Run a command with these environment variables; return None if it takes longer than `seconds`."""
    env = {**os.environ, **settings}
    try:
        return subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return None
