"""A soak on an accelerator that breaks, with daemons that die, under six clients.

The accelerator is that of tests/other_platform, which must be installed. The clients start the daemons.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

from benchmarks.faults.client import DEADLINE_SECONDS
from benchmarks.faults.result import Result
from benchmarks.faults.stage import Stage, client, ended
from jitclient.core.settings import Settings
from jitclient.errors import JitserverError
from jitclient.session.handshake import ask
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb

CLIENTS = 6
PAUSE_SECONDS = 300.0
"""Seconds between two faults of the soak."""

_PATIENCE_SECONDS = 2 * DEADLINE_SECONDS


def devices(folder: Path, faults: int, pause: float) -> Iterator[Result]:
    """The result of so many faults: the device breaks each time, and each second time the daemon dies as well.

    A fault comes when each client has had an answer of the daemon since the one before, and `pause` seconds later.

    Raises:
        RuntimeError: the platform is not installed.
    """
    if not entry_points(group="jax_plugins", name="other_platform"):
        raise RuntimeError("the soak needs an accelerator that can break: pip install ./tests/other_platform")
    there, result = Stage(folder), Result(f"devices that break and daemons that die under {CLIENTS} clients")
    broken = folder / "broken"
    env = {
        **there.environment("client"),
        "JITSERVER_AUTOSTART": "1",
        "JAX_PLATFORMS": "fake,cpu",
        "OTHER_PLATFORM": "fake",
        "OTHER_PLATFORM_BROKEN": str(broken),
    }
    clients = [client(there, env) for _ in range(CLIENTS)]
    try:
        _wait_for_answers(clients, result, "the first calls")
        for number in range(faults):
            time.sleep(pause)
            begun, before = time.monotonic(), _status(there).restarted
            broken.touch()
            has_restarted = _holds(lambda before=before: _status(there).restarted not in ("", before))
            result.check(has_restarted, f"fault {number}: the daemon keeps a device that has failed")
            if number % 2:
                os.kill(_status(there).pid, signal.SIGKILL)
            result.injections += 1 + number % 2
            for each in clients:
                print("more", file=each.stdin, flush=True)
            _wait_for_answers(clients, result, f"fault {number}")
            result.good.append(time.monotonic() - begun)
        for each in clients:
            result.add("a client", {"steps": {"calls": ended(each)["worst"]}, "good": None}, failed=False)
        serves_all = _holds(lambda: _daemons(there) == [_status(there).pid])
        result.check(serves_all, f"daemons without clients are among {_daemons(there)}")
    finally:
        for each in clients:
            each.kill()
            each.wait()
        for pid in _daemons(there):
            os.kill(pid, signal.SIGTERM)
        _holds(lambda: not _daemons(there))
    yield result


def _wait_for_answers(clients: list["subprocess.Popen[str]"], result: Result, since: str) -> None:
    """Count the clients that have no answer in time."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for each in clients:
        assert each.stdout is not None
        is_there = select.select([each.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]
        if not is_there or each.stdout.readline() != "answered\n":
            result.hangs += 1
            result.details.append(f"{since}: a client has no answer")


def _holds(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; return whether it does. A daemon that does not answer is no failure meanwhile."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(JitserverError):
            if condition():
                return True
        time.sleep(0.05)
    return False


def _status(there: Stage) -> Status:
    """Ask the daemon, and the next one if that is gone."""
    found: list[Status] = []
    address = Settings(address=f"unix:{there.path}")
    if not _holds(lambda: found.append(ask(address, Verb.STATUS, None, Status)) is None):
        raise RuntimeError("no daemon answers")
    return found[0]


def _daemons(there: Stage) -> list[int]:
    """Return the processes that are daemons of this stage."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (path / "cmdline").read_bytes().split(b"\0")
            if b"serve" in command and str(there.folder).encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
    return found
