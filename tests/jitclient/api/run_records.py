"""The trace of a small run, for the tests of the files that show it."""

import json
from typing import Any

from jitclient.api.report import report_now
from jitclient.api.report_file import encoded, trace_of
from jitclient.core.events import Log, Started

MILLISECOND = 1_000_000


class Clock:
    """A clock that a test sets, in milliseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now * MILLISECOND


def made_run(name: str = "f") -> tuple[Log, Clock]:
    """A run that imports jax (0 to 100), makes a program (200 to 500), calls it, and finds another (600 to 610)."""
    clock = Clock()
    log = Log(clock)
    log.ask()
    log.daemon = 4321
    log.add("import", 0, 100 * MILLISECOND, "jax")
    clock.now = 200
    with log.program(f"{name}(f32[3])", "a.py:7") as made:
        with log.span("capture", name):
            clock.now = 210
        with log.span("wait"):
            with log.span("trace", name):
                clock.now = 300
            clock.now = 500
            for kind, start, end in (("trace", 210, 250), ("compile", 250, 490)):
                log.add(kind, start * MILLISECOND, end * MILLISECOND, made.label, in_daemon=True)
    made.level, made.differences, made.seconds = "made", ("global LR: 0.1 -> 0.2",), {"trace": 0.04, "compile": 0.24}
    log.add_call("call", made, 495 * MILLISECOND, sent=12, received=4)
    clock.now = 600
    with log.program("g()", "a.py:9") as found, log.span("look-up"):
        clock.now = 610
    found.level, found.saved = "memory", 2.5
    clock.now = 1000
    return log, clock


def traced(log: Log, name: str = "train.py", keeps_compilations: bool = True) -> Any:
    """Return the trace of a run, from JSON."""
    log.start(Started(name))
    return json.loads(encoded(trace_of(log, report_now(), keeps_compilations), "a.json"))
