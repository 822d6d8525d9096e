"""The engine: the daemon's interface for looking up and running programs."""

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from jitclient.capture.ambient import audit
from jitclient.wire.explaining import Explain, Explained
from jitclient.wire.messages import Inspected
from jitserver.programs import context, inspection, keys
from jitserver.programs.callbacks import CallClient
from jitserver.programs.counters import Counters
from jitserver.programs.devices import device_arrays
from jitserver.programs.devices.backend import backend
from jitserver.programs.devices.heartbeat import Health
from jitserver.programs.devices.in_flight import InFlight
from jitserver.programs.devices.serial import recording_callbacks, run_serially
from jitserver.programs.program import CompiledProgram
from jitserver.programs.programs import RUNNING, Programs, request_of
from jitserver.programs.recorder import Recorder, labelled
from jitserver.programs.traces import output
from jitserver.programs.traces.ambient_reads import monotonic
from jitserver.store.explain import with_nearest
from jitserver.store.journal import Journal
from jitserver.store.key_parts import Compared
from jitserver.store.tiers import Tiers

log = logging.getLogger(__name__)


class Engine:
    """The programs of this daemon, with methods to run and inspect them. Thread-safe."""

    def __init__(self, counters: Counters, cache: Tiers, journal: Journal | None = None) -> None:
        # Run each call on the thread that requests it: small calls are four times faster, and callbacks cannot deadlock
        # with the thread that waits for them (jax #25861).
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        # Keep JAX's notes about omitted frames out of the errors that are sent to clients.
        jax.config.update("jax_traceback_filtering", "off")
        self.counters = counters
        self.cache = cache
        self.journal = journal or Journal()
        self.programs = Programs(counters, cache, self.journal)
        self.recorder = Recorder()
        self._thread_state = self.journal.thread_state
        audit.install_hook()
        output.watch()
        context.start_backend()  # now, rather than during the first call
        self.health = Health()
        self.in_flight = None if backend().finishes_calls else InFlight(self.journal)
        context.start_thread(waits=True)  # for this thread, which saves arrays at shutdown
        context.packages()  # now, rather than once for each client that connects at the same time

    # ---- calls and arrays

    def run(
        self,
        built: CompiledProgram,
        arguments: Sequence[Any],
        ran: list[tuple[CompiledProgram, float]],
        call_client: CallClient | None = None,
    ) -> Any:
        """Run a program on resident and received arrays.

        Args:
            built: the program.
            arguments: its arguments.
            ran: a list to which the program and its duration in seconds are appended, for `Counters.add_run`.
            call_client: calls a function of the client, for the program's callbacks.

        Returns:
            The results of the executable.
        """
        run = built.run
        in_flight = None if built.slots else self.in_flight  # programs with callbacks have finished when they return
        if built.suspect and in_flight is not None:
            run, in_flight = functools.partial(in_flight.run_alone, run), None
        if built.slots:
            assert call_client is not None
            call_client = recording_callbacks(call_client) if built.is_multi_device else call_client
            run = functools.partial(run.run, call_client, is_multi_device=built.is_multi_device)
        if built.is_multi_device:
            run = functools.partial(run_serially, run)
        if self.recorder.is_on:
            run = labelled(run, built)
        slot = self._thread_state.slot
        # Write to the slot directly: `Journal.recording` would cost another function call.
        slot[:] = built.mark
        start = monotonic()
        try:
            if built.settings:
                with context.entered(built.settings), _floating_point_errors():
                    results = run(*arguments)
            else:
                results = run(*arguments)
            if in_flight is not None:
                in_flight.note(built, results, start)
        finally:
            slot[0] = 0
            built.last_call = end = monotonic()
            ran.append((built, max(end - start, built.device_seconds)))
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

    # ---- introspection

    def show(self, key: str, what: str) -> Inspected | None:
        """Return a view of a cached program (see inspection.py).

        Returns:
            The view; None if the program is not cached, or the view needs the program's capture and that is not cached.
        """
        if what not in inspection.TRACED:
            entry = self.programs.entry_of(key)
            return None if entry is None else inspection.inspected(entry.program, what)
        stored = self.cache.stored(key)
        capture = self.cache.store.blob(stored.capture) if stored is not None else None
        if stored is None or capture is None:
            return None
        self.counters.add(captures_loaded=1, traces=1)
        return inspection.retraced(request_of(stored), bytes(capture), what)

    def explain(self, request: Explain) -> Explained:
        """Return whether a program exists, and how it differs from the most similar one."""
        lookup = request.request.lookup
        key = self.programs.key_of(lookup)
        if isinstance(key, tuple):
            return Explained("", None, None, (), names=key)
        asked = Compared(key.components().rows, context.of_lookup(lookup), request.request, request.capture)
        found = with_nearest(self.cache, key.text, asked, self.programs.refusal(key.text))
        found.crashes = self.journal.strikes.refusal(found.key)
        if found.found is None:
            in_lab = self.programs.in_lab(key)
            found.lab_seconds = None if in_lab is None else in_lab.seconds
            found.lab_has_trace_only = in_lab is not None and in_lab.only_trace
        return found


@contextlib.contextmanager
def _floating_point_errors() -> Iterator[None]:
    """Convert JAX's internal exception for NaNs to FloatingPointError.

    JAX would rerun the function without jit to locate the NaN, which is impossible for a compiled program.
    """
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "InternalFloatingPointError":  # jax has no public name for it
            raise
        name, kind = error.args
        raise FloatingPointError(f"invalid value ({kind}) encountered in {name}") from None
