"""Lines of JITSERVER_REPORT=lines and `jax.log_compiles`: one for each program that is first used, and local run."""

import contextlib
import logging
from collections.abc import Iterator

from jitclient.calls import exit_summary
from jitclient.calls.identity import explained
from jitclient.calls.specialisation import Specialisation
from jitclient.capture.dump import Capture
from jitclient.core import events
from jitclient.core.clock import perf_counter
from jitclient.core.events import ProgramRecord
from jitclient.core.notices import print_notice
from jitclient.core.settings import report as form_of_report
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
_LONG_SECONDS = 1.0
"""Seconds of making a program after which a terminal shows its line, and its report always says why it was made."""
_NOT_ASKED = "the daemon was not asked why, as its answers took too long"
_printed: set[tuple[str, str]] = set()


def report(
    session: Session,
    wanted: Specialisation,
    request: Prepare,
    prepared: Prepared,
    captured: Capture | None,
    refused: Exception | None = None,
    traced_seconds: float | None = None,
) -> None:
    """Count a program that was got, and print the lines that the settings ask for.

    `captured` is for the comparison with other programs. If the function was traced in this process, `traced_seconds`
    is how long that took, and `refused` why the daemon did not trace it.
    """
    log, program, compiled = events.log, wanted.label, sum(prepared.seconds.values())
    since, why = perf_counter() - wanted.since, "" if refused is None else _in_one_line(refused)
    seconds = prepared.saved - since if prepared.saved else compiled
    kind = "made" if prepared.level in ("made", "remade") else "found"
    log.count(kind, program, prepared.level, prepared.why, seconds=seconds)
    log.count("saved by jax", seconds=prepared.saved_compiling)
    exit_summary.begin()
    record = log.program_here() or ProgramRecord()
    record.level, record.seconds, record.saved = prepared.level, dict(prepared.seconds), prepared.saved
    record.why, record.is_traced_each_time = prepared.why or why, request.lookup.function_key == ""
    took = []
    if traced_seconds is not None:
        log.count("local", wanted.name, "traced", why or "the function has declared inputs")
        took.append(f"traced in this process in {labels.seconds(traced_seconds)}")
    if prepared.seconds:
        took.append(f"compiled in {labels.seconds(compiled)}")
    is_printed = _is_printed(since if took else 0.0)
    is_kept = log.is_asked and not record.why and prepared.seconds
    causes: tuple[str, ...] = (why,) if why else ()
    if is_kept or (is_printed and took and not why):
        # The daemon compares the program with all others of the name, which takes long where these are many.
        most = _MAX_EXPLAINING * (log.now() - log.origin) / 1e9
        if is_printed or since > _LONG_SECONDS or log.total("explained")[1] < most:
            start = perf_counter()
            causes = _differences(session, request, captured)
            log.count("explained", seconds=perf_counter() - start)
        else:
            causes = (_NOT_ASKED,)
    if is_kept:
        record.differences = causes
    if is_printed:
        _print(program, ", ".join(took) or f"found in {labels.seconds(since)}", causes)
    if prepared.seconds and logs_compiles():
        stages = ", ".join(f"{stage} {labels.seconds(seconds)}" for stage, seconds in prepared.seconds.items())
        _log.warning("%s was made on the daemon: %s", program, stages)


def _differences(session: Session, request: Prepare, captured: Capture | None) -> tuple[str, ...]:
    """Return the differences from the nearest program, or a line which says that there is none; empty if unknown."""
    # The call must not fail because the cause is unknown.
    with contextlib.suppress(JitserverError):
        found = explained(session.ask, request, captured)
        return (NONE_SIMILAR,) if found.nearest is None else tuple(map(str, found.differences))
    return ()


@contextlib.contextmanager
def of_local_run(name: str, why: Exception) -> Iterator[None]:
    """Count a function that ran in this process; print the reason and the duration of its first call on stderr.

    A call that raises an exception has no reason: JAX's own error says all.
    """
    text, start, failed = _in_one_line(why), perf_counter(), False
    try:
        # Such calls may be many.
        with events.log.span("run here", f"{name}: {text}") if events.log.is_asked else contextlib.nullcontext():
            yield
    except Exception:
        failed = True
        raise
    finally:
        if not failed:
            events.log.count("local", name, "run", text)
    if form_of_report() == "lines" and (name, text) not in _printed:
        _printed.add((name, text))
        _print(name, f"ran in this process in {labels.seconds(perf_counter() - start)}", (text,))


def _is_printed(made_seconds: float) -> bool:
    form = form_of_report()
    return form == "lines" or (form != "off" and made_seconds > _LONG_SECONDS and exit_summary.is_shown())


def _print(program: str, what: str, causes: tuple[str, ...]) -> None:
    more = (f"and {len(causes) - _MAX_CAUSES} more",) if len(causes) > _MAX_CAUSES else ()
    why = f" ({'; '.join((*causes[:_MAX_CAUSES], *more))})" if causes else ""
    print_notice(f"{program}  {what}{why}")


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
