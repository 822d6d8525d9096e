"""A record of a small run, for the tests of the files that show it."""

from jitclient.api.report import report_of
from jitclient.api.run_record import RunRecord, record_of
from jitclient.calls.usage import Got, Usage
from jitclient.core.spans import Timeline
from jitclient.jaxside.compile_events import CompileEvents

MILLISECOND = 1_000_000


class Clock:
    """A clock that a test sets, in milliseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now * MILLISECOND


def made_run(name: str = "f") -> tuple[Timeline, Clock]:
    """A run that imports jax (0 to 100), makes a program (200 to 500), calls it, and finds another (600 to 610)."""
    clock = Clock()
    line = Timeline(clock)
    line.daemon = 4321
    line.add("import", 0, 100 * MILLISECOND, "jax")
    clock.now = 200
    with line.program(f"{name}(f32[3])", "a.py:7") as made:
        with line.span("capture", name):
            clock.now = 210
        with line.span("wait"):
            with line.span("trace", name):
                clock.now = 300
            clock.now = 500
            for kind, start, end in (("trace", 210, 250), ("compile", 250, 490)):
                line.add(kind, start * MILLISECOND, end * MILLISECOND, made.label, in_daemon=True)
    made.level, made.differences, made.seconds = "made", ("global LR: 0.1 -> 0.2",), {"trace": 0.04, "compile": 0.24}
    line.count("call", made, 495 * MILLISECOND, sent=12, received=4)
    clock.now = 600
    with line.program("g()", "a.py:9") as found, line.span("look-up"):
        clock.now = 610
    found.level, found.saved = "memory", 2.5
    clock.now = 1000
    return line, clock


def record(name: str = "f", keeps_compilations: bool = True) -> RunRecord:
    """Return the record of `made_run`."""
    usage = Usage()
    usage.add(Got("g()", "memory"), 2.5)
    return record_of(made_run(name)[0], "train.py", report_of(usage, CompileEvents()), keeps_compilations)
