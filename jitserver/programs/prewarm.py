"""Prewarming: loads the most valuable programs when the daemon starts, and runs them once on zeros.

Such a dry run pays for XLA's first execution, which takes more than a second longer than later ones if the program is
large. So no client waits for it.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable

import jax

from jitclient.wire.array_transport import nbytes_of
from jitserver.programs import context
from jitserver.programs.devices import device_arrays
from jitserver.programs.engine import Engine
from jitserver.programs.program import Program
from jitserver.store.entry import Entry, worth
from jitserver.store.strikes import DRY_RUN, MOST

log = logging.getLogger(__name__)

_SHARE = 0.5
"""Of the memory for programs. The rest is for new ones."""

_MOST_SECONDS = 1.0
_ALL_SECONDS = 10.0
_MOST_BYTES = (
    256 << 20
)  # of arguments, results and temporaries: making them takes time, too, however quick the calls were

_UNSURE = re.compile(
    r' (?:while\((?!.*"known_trip_count":\{"n":)'
    r"|(?:conditional|custom-call|infeed|outfeed|send|recv|reduce-scatter|(?:ragged-)?all-[a-z-]+|collective-[a-z-]+)"
    r"(?:-start)?\()"
)
"""Operations whose work depends on values or on other processes. A program without them does the same work in each
run. So a run on zeros takes as long as its calls did. With a loop over values, it might never end.
"""


def prewarm(engine: Engine, goes_on: Callable[[], bool]) -> list[str]:
    """Loads programs from the disk until the share is full; returns their keys, the best first.

    A client that requests one meanwhile does not wait: its own thread loads the program.

    Args:
        engine: gets the programs.
        goes_on: called before each program; waits until that would delay no client, and returns whether to load it.
    """
    memory, now, keys = engine.cache.memory, time.time(), list[str]()
    for info in sorted(engine.cache.store.infos(), key=lambda info: -worth(info, now)):
        if memory.nbytes > memory.most_bytes * _SHARE or not goes_on():
            break
        if engine.programs.warm(info.key):
            keys.append(info.key)
    log.info("%d programs loaded from the disk", len(keys))
    return keys


def dry_run(
    engine: Engine, keys: Iterable[str], may_begin: Callable[[], bool], find_room: Callable[[int, str], None]
) -> None:
    """Runs those programs that are certainly quick and without side effects, one after another.

    Only on the CPU: on other devices calls return before they are computed, so their durations are not known.

    Args:
        engine: has the programs in memory.
        keys: of the programs, the most important first.
        may_begin: whether no client would be delayed; called before each run.
        find_room: raises if the memory budget lacks so many bytes for what is named.
    """
    suspects, deadline = engine.journal.strikes.all(), time.monotonic() + _ALL_SECONDS - _MOST_SECONDS
    crashed = {key for key, suspect in suspects.items() if suspect.count(DRY_RUN)}
    if context.export_platform() != "cpu" or not engine.journal.lasts:
        return
    if len(crashed) >= MOST:
        log.warning("no dry runs: the daemon died during those of %d programs; `jitserver cache rm` resets that", MOST)
        return
    for key in keys:
        entry = engine.cache.memory.get(key)
        if entry is None or key in crashed or not _may_be_run(entry):
            continue
        if not may_begin() or time.monotonic() > deadline:
            return
        try:
            if _UNSURE.search(entry.program.run.as_text()):
                continue
            nbytes = _nbytes(entry.program)
            if nbytes > _MOST_BYTES:
                continue
            find_room(nbytes, f"a dry run of {entry.info.label}")
            if not may_begin():  # reading the text of a large program takes a while
                return
            with engine.journal.noted(DRY_RUN, key, entry.info.label):
                _run_on_zeros(entry.program)
        except Exception as error:
            log.info("no dry run of %s: %s", entry.info.label, error)
        else:
            engine.counters.add(dry_runs=1)


def _may_be_run(entry: Entry) -> bool:
    """Whether it is plain, on one device, not yet called in this process, and its earlier calls were quick."""
    program: Program = entry.program
    is_placed = any(spec.sharding for spec in (*program.specs, *program.results))
    in_order = not (program.calls or program.may_raise or program.suspect or is_placed)
    return in_order and 0 < entry.info.slowest <= _MOST_SECONDS


def _nbytes(program: Program) -> int:
    memory = program.run.memory_analysis()
    return int(memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes)


def _run_on_zeros(program: Program) -> None:
    with context.entered(program.settings):
        zeros = [land(bytes(nbytes_of(spec))) for spec, land in zip(program.specs, program.landings, strict=True)]
        for position in program.donated:
            zeros[position] = device_arrays.on_device(zeros[position])
        jax.block_until_ready(program.run(*zeros))
