"""Report of `--report`: the programs used, the time that hits saved, and the work done in this process instead."""

import os
from collections.abc import Iterator

from jitclient.calls.usage import Usage
from jitclient.core.notices import print_notice
from jitclient.wire import labels

_MAX_ROWS = 20
_FOUND = {"memory": "found in memory", "disk": "found on the disk"}


def print_report(used: Usage, pid: int) -> None:
    """Print the report on stderr, but only in the process `pid`, not in a fork of it."""
    if os.getpid() == pid:
        for line in lines(used):
            print_notice(line)


def lines(used: Usage) -> Iterator[str]:
    """Yield the lines of the report."""
    width = max((len(program) for program, _ in used.got), default=0)
    programs = [
        f"{program:{width}}  {_how(level, seconds)}{_times(times)}"
        for (program, level), (times, seconds) in sorted(used.got.items())
    ]
    counts = {level: sum(n for (_, at), (n, _) in used.got.items() if at == level) for level in (*_FOUND, "made")}
    saved = sum(seconds for (_, level), (_, seconds) in used.got.items() if level in _FOUND)
    local = [f"{name} was {what}{_times(n)}: {why}" for (name, what, why), n in sorted(used.local.items())]
    yield from _rows("programs", programs or ["none"])
    yield from _rows("hits", [f"{counts['memory']} in memory, {counts['disk']} on the disk; {counts['made']} made"])
    yield from _rows("saved", [f"{labels.seconds(saved)} of tracing and compiling"])
    yield from _rows("local", local or ["nothing"])


def _how(level: str, seconds: float) -> str:
    took = labels.seconds(seconds)
    return f"{_FOUND[level]}, {took} saved" if level in _FOUND else f"made in {took}"


def _times(number: int) -> str:
    return f", {number} times" if number > 1 else ""


def _rows(title: str, entries: list[str]) -> Iterator[str]:
    more = [f"and {len(entries) - _MAX_ROWS} more"] if len(entries) > _MAX_ROWS else []
    for entry in entries[:_MAX_ROWS] + more:
        yield f"{title:8}  {entry}"
        title = ""
