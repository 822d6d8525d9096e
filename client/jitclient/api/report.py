"""Report of `--report`: the programs used, the time that hits saved, and the work done in this process instead."""

import collections
import os
from collections.abc import Iterator

from jitclient.calls.usage import Got, Usage
from jitclient.core.notices import print_notice
from jitclient.jaxside import compilation_cache
from jitclient.jaxside.compilation_cache import CompilationCache
from jitclient.wire import labels

_MAX_ROWS = 20
_FOUND = {"memory": "found in memory", "disk": "found on the disk"}


def print_report(used: Usage, pid: int) -> None:
    """Print the report on stderr, but only in the process `pid`, not in a fork of it."""
    if os.getpid() == pid:
        for line in lines(used, compilation_cache.own()):
            print_notice(line)


def lines(used: Usage, cache: CompilationCache | None = None) -> Iterator[str]:
    """Yield the lines of the report.

    Args:
        used: the programs that this process used.
        cache: the cache of this process's jax, if it has one.
    """
    width = max((len(got.program) for got in used.got), default=0)
    programs = [
        f"{got.program:{width}}  {_how(got, seconds)}{_times(times)}"
        for got, (times, seconds) in sorted(used.got.items())
    ]
    counts: collections.Counter[str] = collections.Counter()
    for got, (times, _) in used.got.items():
        counts[got.level] += times
    saved = sum(seconds for got, (_, seconds) in used.got.items() if got.level in _FOUND)
    again = f", {counts['remade']} made again" if counts["remade"] else ""
    local = [f"{name} was {what}{_times(n)}: {why}" for (name, what, why), n in sorted(used.local.items())]
    yield from _rows("programs", programs or ["none"])
    yield from _rows(
        "hits", [f"{counts['memory']} in memory, {counts['disk']} on the disk; {counts['made']} made{again}"]
    )
    yield from _rows("saved", [f"{labels.seconds(saved)} of tracing and compiling"])
    if cache is not None and cache.found + cache.compiled:
        compilations = f"{cache.found} compilations found, {labels.seconds(cache.saved_seconds)} saved"
        yield from _rows("jax", [f"{compilations}; {cache.compiled} made in this process"])
    yield from _rows("local", local or ["nothing"])


def _how(got: Got, seconds: float) -> str:
    took = labels.seconds(seconds)
    if got.level in _FOUND:
        return f"{_FOUND[got.level]}, {took} saved"
    return f"made again in {took} (its executable was not kept: {got.why})" if got.why else f"made in {took}"


def _times(number: int) -> str:
    return f", {number} times" if number > 1 else ""


def _rows(title: str, entries: list[str]) -> Iterator[str]:
    more = [f"and {len(entries) - _MAX_ROWS} more"] if len(entries) > _MAX_ROWS else []
    for entry in entries[:_MAX_ROWS] + more:
        yield f"{title:8}  {entry}"
        title = ""
