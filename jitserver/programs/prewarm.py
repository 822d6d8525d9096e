"""Prewarming: at its start, the daemon loads the most valuable programs, and runs the safe ones on zeros.

A daemon without programs imports the packages that the first program has imported, while that sets itself up. Programs
from the disk need no packages.

A dry run bears the cost of XLA's first execution, which can be more than a second longer than later executions for a
large program, so that no client has to wait for it.
"""

import importlib
import logging
import re
import time
from collections.abc import Callable, Iterable

import jax

from jitclient.wire.array_transport import nbytes_of
from jitserver.programs import context
from jitserver.programs.devices import device_arrays
from jitserver.programs.devices.backend import backend
from jitserver.programs.engine import Engine
from jitserver.programs.program import CompiledProgram
from jitserver.store.entry import Entry, eviction_score
from jitserver.store.strikes import DRY_RUN, MAX_STRIKES

log = logging.getLogger(__name__)

_SHARE = 0.5
"""Share of the memory for programs that prewarming may fill; the rest is for new programs."""

_MAX_SECONDS = 1.0
_MAX_TOTAL_SECONDS = 10.0
# Limit on arguments, results and temporaries: allocating them takes time, however quick the calls were.
_MAX_BYTES = 256 << 20

_UNPREDICTABLE = re.compile(
    r' (?:while\((?!.*"known_trip_count":\{"n":)'
    r"|(?:conditional|custom-call|infeed|outfeed|send|recv|reduce-scatter|(?:ragged-)?all-[a-z-]+|collective-[a-z-]+)"
    r"(?:-start)?\()"
)
"""Operations whose work depends on values or on other processes.

A program without such operations does the same work in each run, so a run on zeros takes as long as its earlier calls.
A loop that depends on values might never finish.
"""


def prewarm(engine: Engine, may_continue: Callable[[], bool]) -> list[str]:
    """Load programs from disk until the share is full.

    A client that requests such a program meanwhile does not wait: its own thread loads the program.

    Args:
        engine: the engine that gets the programs.
        may_continue: called before each program. Waits until loading would delay no client, and returns whether to
            load it.

    Returns:
        The keys of the loaded programs, the most valuable first.
    """
    memory, now, keys = engine.cache.memory, time.time(), list[str]()
    for info in sorted(engine.cache.store.infos(), key=lambda info: -eviction_score(info, now)):
        if memory.nbytes > memory.max_bytes * _SHARE or not may_continue():
            break
        if engine.programs.warm(info.key):
            keys.append(info.key)
    log.info("prewarming: loaded %d programs from the disk", len(keys))
    return keys


def import_packages(names: Iterable[str], may_continue: Callable[[], bool]) -> None:
    """Import packages that depend on jax, so that the first program with them does not wait for it.

    Other packages are rarely part of a jitted function, and may be large.

    Args:
        names: the packages.
        may_continue: as for `prewarm`.
    """
    packages = context.packages()
    for name in names:
        if not may_continue():
            return
        try:
            if packages.depends_on(name, "jax"):
                importlib.import_module(name)
                log.info("prewarming: imported %s", name)
        # A module may exit.
        except (Exception, SystemExit) as error:
            log.info("prewarming: cannot import %s (%s)", name, error)
    packages.record_loaded()


def dry_run(
    engine: Engine, keys: Iterable[str], may_begin: Callable[[], bool], reserve_memory: Callable[[int, str], None]
) -> None:
    """Run the programs that are certainly quick and free of side effects, one after another.

    Runs take place on the CPU only: on other devices, calls return before they are computed, so their durations are
    unknown.

    Args:
        engine: the engine that has the programs in memory.
        keys: the keys of the programs, the most important first.
        may_begin: returns whether a run would delay no client; called before each run.
        reserve_memory: raises an exception if the memory budget lacks this number of bytes; the text names their
            purpose.
    """
    suspects, deadline = engine.journal.strikes.all(), time.monotonic() + _MAX_TOTAL_SECONDS - _MAX_SECONDS
    crashed = {key for key, suspect in suspects.items() if suspect.count(DRY_RUN)}
    if not backend().finishes_calls or not engine.journal.is_persistent:
        return
    if len(crashed) >= MAX_STRIKES:
        log.warning(
            "dry runs: disabled, because the daemon crashed in those of %d programs. `jitserver cache rm` resets this.",
            MAX_STRIKES,
        )
        return
    for key in keys:
        entry = engine.cache.memory.get(key)
        if entry is None or key in crashed or not _may_be_run(entry):
            continue
        if not may_begin() or time.monotonic() > deadline:
            return
        try:
            if _UNPREDICTABLE.search(entry.program.run.as_text()):
                continue
            nbytes = _nbytes(entry.program)
            if nbytes > _MAX_BYTES:
                continue
            reserve_memory(nbytes, f"a dry run of {entry.info.label}")
            if not may_begin():  # reading the text of a large program takes a while
                return
            with engine.journal.recording(DRY_RUN, key, entry.info.label):
                _run_on_zeros(entry.program)
        except Exception as error:
            log.info("dry runs: skipped %s (%s)", entry.info.label, error)
        else:
            engine.counters.add(dry_runs=1)


def _may_be_run(entry: Entry) -> bool:
    """Return whether a dry run is safe.

    The program must be plain, on one device, and not yet called in this process, and its earlier calls must have been
    quick.
    """
    program: CompiledProgram = entry.program
    is_placed = any(spec.sharding for spec in (*program.specs, *program.results))
    in_order = not (program.calls or program.may_raise or program.suspect or is_placed)
    return in_order and 0 < entry.info.slowest <= _MAX_SECONDS


def _nbytes(program: CompiledProgram) -> int:
    memory = program.run.memory_analysis()
    return int(memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes)


def _run_on_zeros(program: CompiledProgram) -> None:
    with context.entered(program.settings):
        zeros = [decode(bytes(nbytes_of(spec))) for spec, decode in zip(program.specs, program.decoders, strict=True)]
        for position in program.donated:
            zeros[position] = device_arrays.on_device(zeros[position])
        jax.block_until_ready(program.run(*zeros))
