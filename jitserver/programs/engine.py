"""The engine: runs the programs of the daemon."""

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from jitclient.capture.ambient import world
from jitclient.wire.explaining import Explain, Explained
from jitclient.wire.messages import Inspected
from jitserver.programs import context, inspection, keys
from jitserver.programs.callbacks import Ask
from jitserver.programs.counters import Counters
from jitserver.programs.devices import device_arrays
from jitserver.programs.devices.alone import alone, in_callbacks
from jitserver.programs.program import Program, Say
from jitserver.programs.programs import RUNNING, Programs, request_of
from jitserver.programs.traces import output
from jitserver.programs.traces.readers import monotonic
from jitserver.store.journal import Journal
from jitserver.store.tiers import Tiers
from jitserver.store.why import against_nearest

log = logging.getLogger(__name__)


class Engine:
    """Holds the programs of this daemon, and runs them. Thread-safe."""

    def __init__(self, counters: Counters, cache: Tiers, journal: Journal | None = None) -> None:
        # So a call runs on the thread that requests it, which is four times faster for small calls, and callbacks
        # cannot deadlock with the thread that waits for them (jax #25861).
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        # Errors are sent as they are, without JAX's notes about frames that it has left out.
        jax.config.update("jax_traceback_filtering", "off")
        self.counters = counters
        self.cache = cache
        self.journal = journal or Journal()
        self.programs = Programs(counters, cache, self.journal)
        self._here = self.journal.here
        world.watch()
        output.watch()
        context.start_backend()  # now, not during the first call
        context.start_thread()  # the one that saves arrays at the end
        context.packages()  # now, not once for each client that comes at once

    # ---- calls and arrays

    def run(
        self, built: Program, arguments: Sequence[Any], ran: list[tuple[Program, float]], ask: Ask | None = None
    ) -> Any:
        """Runs a program on resident and received arrays, for a client that its callbacks `ask`; appends its duration
        to `ran`, for `add_run`.
        """
        run = built.run
        if built.slots:
            assert ask is not None
            ask = in_callbacks(ask) if built.is_spread else ask
            run = functools.partial(run.run, ask, is_spread=built.is_spread)
        if built.is_spread:
            run = functools.partial(alone, run)
        slot = self._here.slot
        slot[:] = built.mark  # inlined `Journal.noted`, which would cost another function call
        start = monotonic()
        try:
            if built.settings:
                with context.entered(built.settings), _floating_point_errors():
                    results = run(*arguments)
            else:
                results = run(*arguments)
        finally:
            slot[0] = 0
            built.last_call = end = monotonic()
            ran.append((built, end - start))
            if built.suspect:
                self.journal.strikes.forgive(built.suspect, RUNNING)
                built.suspect = ""
        return results

    start_thread = staticmethod(context.start_thread)
    key_of = staticmethod(keys.call_key)
    on_device = staticmethod(device_arrays.on_device)
    put = staticmethod(device_arrays.put)
    moved = staticmethod(device_arrays.moved)
    to_host = staticmethod(device_arrays.to_host)
    release_host_buffers = staticmethod(device_arrays.release_host_buffers)
    share = staticmethod(device_arrays.share)
    nbytes = staticmethod(device_arrays.nbytes)

    # ---- introspection

    def show(self, key: str, what: str, say: Say) -> Inspected | None:
        """A view of a cached program (see inspection.py), or None if it is not in the cache."""
        if what not in inspection.TRACED:
            entry = self.programs.entry_of(key, say)
            return None if entry is None else inspection.inspected(entry.program, what)
        stored = self.cache.stored(key)
        capture = self.cache.store.blob(stored.capture) if stored is not None else None
        if stored is None or capture is None:
            return None
        self.counters.add(captures_loaded=1, traces=1)
        return inspection.traced_again(request_of(stored), bytes(capture), what)

    def explain(self, request: Explain) -> Explained:
        """Whether a program exists, and how it differs from the most similar one."""
        key = self.programs.key_of(request.lookup)
        if isinstance(key, tuple):
            return Explained("", None, None, (), names=key)
        makeup, refusal = keys.makeup_of(key, request.parts), self.programs.refusal(key.text)
        found = against_nearest(self.cache.get, self.cache.named, key.text, makeup, request.name, refusal)
        found.crashes = self.journal.strikes.refusal(found.key)
        return found


@contextlib.contextmanager
def _floating_point_errors() -> Iterator[None]:
    """Turns JAX's internal exception for NaNs into FloatingPointError: the program cannot be run again without jit."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "InternalFloatingPointError":  # jax has no public name for it
            raise
        name, kind = error.args
        raise FloatingPointError(f"invalid value ({kind}) encountered in {name}") from None
