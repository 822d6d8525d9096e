"""Log of JITSERVER_EXPLAIN=1 and `jax.log_compiles`: a line for each trace, compilation and local run."""

import contextlib
import logging
from collections.abc import Iterator

from jitclient.calls import exit_summary
from jitclient.calls.identity import explained
from jitclient.calls.specialisation import Specialisation
from jitclient.capture.dump import Capture
from jitclient.core import events
from jitclient.core.clock import perf_counter
from jitclient.core.notices import print_notice
from jitclient.core.settings import settings
from jitclient.errors import JitserverError
from jitclient.jaxside.context import logs_compiles
from jitclient.session.session import Session
from jitclient.wire import labels
from jitclient.wire.messages import Prepare, Prepared

_log = logging.getLogger("jitclient")
_MAX_CAUSES = 3
NONE_SIMILAR = "no similar program is cached"
_MAX_EXPLAINING = 0.05
"""Maximum share of a run in which its report asks why programs were made."""
_ALWAYS_EXPLAINED_SECONDS = 1.0
_NOT_ASKED = "the daemon was not asked why, as its answers took too long"
_printed: set[tuple[str, str]] = set()


class CompileLog:
    """Account of the work that getting one program took."""

    def __init__(self, wanted: Specialisation, captured: Capture | None, why: Exception | None = None) -> None:
        self.wanted = wanted
        self.captured = captured  # for the comparison with other programs
        self.why = why  # why the daemon did not trace the function, if so
        self.traced_seconds: float | None = None  # of a trace in this process, if any

    def report(self, session: Session, request: Prepare, prepared: Prepared) -> None:
        """Count the program, and print the lines that the settings ask for."""
        program, compiled = self.wanted.label, sum(prepared.seconds.values())
        found_in = perf_counter() - self.wanted.since
        kind = "made" if prepared.level in ("made", "remade") else "found"
        seconds = prepared.saved - found_in if prepared.saved else compiled
        events.log.count(kind, program, prepared.level, prepared.why, seconds=seconds)
        events.log.count("saved by jax", seconds=prepared.saved_compiling)
        exit_summary.begin()
        took = []
        if self.traced_seconds is not None:
            why = "the function has declared inputs" if self.why is None else _in_one_line(self.why)
            events.log.count("local", self.wanted.name, "traced", why)
            took.append(f"traced in this process in {labels.seconds(self.traced_seconds)}")
        if prepared.seconds:
            took.append(f"compiled in {labels.seconds(compiled)}")
        self._record(session, request, prepared)
        if took and session.settings.explain:
            # The call must not fail because the cause is unknown.
            with contextlib.suppress(JitserverError):
                print_notice(f"{program} was {' and '.join(took)}; {self._cause(session, request)}")
        if prepared.seconds and logs_compiles():
            stages = ", ".join(f"{stage} {labels.seconds(seconds)}" for stage, seconds in prepared.seconds.items())
            _log.warning("%s was made on the daemon: %s", program, stages)

    def _record(self, session: Session, request: Prepare, prepared: Prepared) -> None:
        log = events.log
        record = log.program_here()
        if record is None:
            return
        record.level, record.seconds, record.saved = prepared.level, dict(prepared.seconds), prepared.saved
        record.why = prepared.why or ("" if self.why is None else _in_one_line(self.why))
        record.is_traced_each_time = request.lookup.function_key == ""
        if not prepared.seconds or record.why or not log.is_asked:
            return
        # The daemon compares the program with all others of the name, which takes long where these are many.
        is_slow = perf_counter() - self.wanted.since > _ALWAYS_EXPLAINED_SECONDS
        if is_slow or log.total("explained")[1] < _MAX_EXPLAINING * (log.now() - log.origin) / 1e9:
            start = perf_counter()
            with contextlib.suppress(JitserverError):
                record.differences = tuple(self._differences(session, request))
            log.count("explained", seconds=perf_counter() - start)
        else:
            record.differences = (_NOT_ASKED,)

    def _differences(self, session: Session, request: Prepare) -> list[str]:
        """Return the differences from the nearest program, or one line which says that there is none."""
        found = explained(session.ask, request, self.captured)
        return [NONE_SIMILAR] if found.nearest is None else [str(difference) for difference in found.differences]

    def _cause(self, session: Session, request: Prepare) -> str:
        if self.why is not None:
            return _in_one_line(self.why)
        causes = self._differences(session, request)
        more = [f"and {len(causes) - _MAX_CAUSES} more differences"] if len(causes) > _MAX_CAUSES else []
        return "; ".join(causes[:_MAX_CAUSES] + more)


@contextlib.contextmanager
def of_local_run(name: str, why: Exception) -> Iterator[None]:
    """Count a function that ran in this process; print the reason and the duration of its first call on stderr."""
    text = _in_one_line(why)
    events.log.count("local", name, "run", text)
    start = perf_counter()
    # Such calls may be many.
    with events.log.span("run here", f"{name}: {text}") if events.log.is_asked else contextlib.nullcontext():
        yield
    if settings().explain and (name, text) not in _printed:
        _printed.add((name, text))
        print_notice(f"{name} ran in this process, in {labels.seconds(perf_counter() - start)}; {text}")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
