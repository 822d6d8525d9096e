"""The directory of one profile: what daemons recorded, beside what JAX's profiler wrote.

XProf shows each `HOST.xplane.pb` of the directory as a host. Perfetto shows the one file `*.trace.json.gz`, to which
the daemons' events are added.
"""

import gzip
import json
import os
from pathlib import Path
from typing import Any

from jitclient.profiles import xspace
from jitclient.wire.recording import Recorded

_XSPACE, _TRACE = ".xplane.pb", ".trace.json.gz"


def latest(log_directory: str | os.PathLike[str]) -> Path:
    """Return the directory of the profile that was written last.

    Raises:
        ValueError: there is none.
    """
    found = Path(log_directory).absolute() / "plugins" / "profile"
    return max(found.iterdir() if found.is_dir() else (), key=os.path.getmtime)


def add(directory: Path, parts: list[Recorded], clock_ahead: int) -> None:
    """Add what a daemon recorded to the profile of this process, on the clock of this process's profiler.

    Args:
        directory: the directory of the profile, as JAX's profiler wrote it; or with another daemon's parts added.
        parts: what was recorded.
        clock_ahead: by how many nanoseconds the daemon's clock is ahead.

    Raises:
        OSError, ValueError: the directory has no such profile, or cannot be written.
    """
    [trace] = directory.glob(f"*{_TRACE}")
    own = directory / f"{trace.name.removesuffix(_TRACE)}{_XSPACE}"
    start = xspace.start_of(own.read_bytes())
    shown = _read(trace)
    for part in filter(lambda part: part.xspace, parts):
        host = _unused_host(directory, part)
        (directory / f"{host}{_XSPACE}").write_bytes(xspace.moved(part.xspace, start, clock_ahead, host))
        later = xspace.start_of(part.xspace) - clock_ahead - start
        shown["traceEvents"] = [*shown["traceEvents"], *_events(part, host, later, _unused_process(shown))]
    trace.write_bytes(gzip.compress(json.dumps(shown).encode()))


def _unused_host(directory: Path, part: Recorded) -> str:
    """Return a name for the daemon's host that no file of the directory has."""
    name = host = f"{part.host}-jitserver"
    number = 1
    while (directory / f"{host}{_XSPACE}").exists():
        number += 1
        host = f"{name}-{number}"
    return host


def _unused_process(shown: dict[str, Any]) -> int:
    """Return a number to add to those of processes, so that all are above those in a trace."""
    return max((int(event.get("pid", 0)) for event in shown["traceEvents"]), default=0) + 1


def _events(part: Recorded, host: str, later: int, first: int) -> list[dict[str, Any]]:
    """Return a part's events as Perfetto shows them, `later` by some nanoseconds, and their processes named by host."""
    shown = json.loads(gzip.decompress(part.trace)) if part.trace else {"traceEvents": []}
    found = [event for event in shown["traceEvents"] if event]
    for event in found:
        event["pid"] = event.get("pid", 0) + first
        if "ts" in event:
            event["ts"] += later / 1000
        if event.get("name") == "process_name":
            event["args"]["name"] = f"{host} {event['args']['name']}"
    return found


def _read(trace: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(trace.read_bytes()))
    return found
