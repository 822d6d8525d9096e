"""The engine: all that the daemon asks of jax. Programs are run, arrays held and devices told of here."""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax

from jitclient.codec.ambient import world
from jitclient.codec.steps.sharing import class_count
from jitclient.wire.explaining import Explain, Explained, Why
from jitclient.wire.messages import Inspected
from jitserver.cache import why
from jitserver.cache.tiers import Tiers
from jitserver.counters import Counters
from jitserver.crashes.journal import Journal
from jitserver.engine import context, device_arrays, explaining, inspecting, keys, trace_output, trace_warnings
from jitserver.engine.program import Program, Say
from jitserver.engine.programs import RUNNING, Programs, request_of
from jitserver.engine.readers import monotonic

log = logging.getLogger(__name__)


class Engine:
    """Holds the programs of this daemon, and runs them. Safe to use from many threads."""

    def __init__(self, counters: Counters, cache: Tiers, journal: Journal | None = None) -> None:
        # A call then runs on the thread that asked for it: four times faster for small ones, and callbacks cannot
        # deadlock against the thread that waits for them (FINDINGS; jax #25861).
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        # Tracebacks are trimmed to the user's frames in one place: failures.py.
        jax.config.update("jax_traceback_filtering", "off")
        self.counters = counters
        self.cache = cache
        self.journal = journal or Journal()
        self.programs = Programs(counters, cache, self.journal)
        self._here = self.journal.here
        world.watch()
        trace_warnings.watch()
        trace_output.watch()
        context.of_process()  # starts the backend now, not under the first call

    # ---- calls and arrays

    def run(self, built: Program, arguments: Sequence[Any], ran: list[tuple[Program, float]]) -> Any:
        """Runs a program on resident arrays and arrays off the wire; notes in `ran` how long, for `add_run`."""
        slot = self._here.slot
        slot[:] = built.mark  # as the journal's `noted`, which would be a call more for each call
        start = monotonic()
        try:
            if built.settings:
                with context.entered(built.settings), _floating_point_errors():
                    results = built.run(*arguments)
            else:
                results = built.run(*arguments)
        finally:
            slot[0] = 0
            built.last_call = end = monotonic()
            ran.append((built, end - start))
            if built.suspect:
                self.journal.strikes.forgive(built.suspect, RUNNING)
                built.suspect = ""
        return results

    key_of = staticmethod(keys.call_key)
    on_device = staticmethod(device_arrays.on_device)
    resident = staticmethod(device_arrays.resident)
    to_host = staticmethod(device_arrays.to_host)
    let_go = staticmethod(device_arrays.let_go)
    share = staticmethod(device_arrays.share)
    nbytes = staticmethod(device_arrays.nbytes)

    # ---- looking inside

    inspect = staticmethod(inspecting.inspected)
    devices = staticmethod(context.device_names)
    device_infos = staticmethod(context.device_infos)
    device_memory = staticmethod(context.device_memory)
    platform = staticmethod(context.export_platform)
    classes = staticmethod(class_count)

    def show(self, key: str, what: str, say: Say) -> Inspected | None:
        """What is known of a cached program: see inspecting.py. None where it is not there.

        Raises:
            CaptureError: its function cannot be traced once more.
        """
        if what not in inspecting.TRACED:
            entry = self.programs.entry_of(key, say)
            return None if entry is None else inspecting.inspected(entry.program, what)
        stored = self.cache.stored(key)
        capture = self.cache.store.blob(stored.capture) if stored is not None else None
        if stored is None or capture is None:
            return None
        self.counters.add(captures_loaded=1, traces=1)
        return inspecting.traced_again(request_of(stored), bytes(capture), what)

    def explain(self, request: Explain) -> Explained:
        """Whether a program is there, and where it differs from the nearest other one."""
        key = keys.call_key(request.lookup)
        found = explaining.explained(self.cache, key, request, self.programs.refusal(key.text))
        found.crashes = self.journal.strikes.refusal(found.key)
        return found

    def why(self, request: Why) -> Explained | None:
        """Where a cached program differs from another; None if one of them is not there."""
        return why.why(self.cache.get, self.cache.named, request)

    def replaced_packages(self, names: Iterable[str] = ()) -> list[str]:
        """Packages that this daemon has loaded and that the disk has otherwise by now."""
        return context.packages().replaced(names)

    def versions(self) -> dict[str, str]:
        """The versions of the packages that must agree with a client's."""
        return {name: context.packages().version(name) for name in ("jax", "jaxlib")}

    def versions_behind(self, names: Iterable[str]) -> dict[str, str]:
        """The versions of packages, and of all that they require."""
        return context.packages().versions(names)


@contextlib.contextmanager
def _floating_point_errors() -> Iterator[None]:
    """What `jax.debug_nans` raises where nothing can be run again, as the class that users know."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "InternalFloatingPointError":  # jax has no public name for it
            raise
        name, kind = error.args
        raise FloatingPointError(f"invalid value ({kind}) encountered in {name}") from None
