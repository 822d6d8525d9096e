"""Spans of a run, for the report that draws it: which thread did what, and when."""

import collections
import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jitclient.core.clock import perf_counter_ns, time

MAX_SPANS = 20_000
"""Maximum number of spans; later ones are only counted."""

MIN_NANOSECONDS = 1_000_000
"""Minimum duration of a call or a transfer with a span of its own, unless it is the first of its program."""

_OWN_TRACES = ("trace", "lower")


@dataclasses.dataclass(eq=False)
class ProgramRecord:
    """Program that this process looked for, and its calls.

    Attributes:
        number: position among the records.
        label: name and arguments.
        where: file and line of the function.
        level: where the program was found, or "made"; empty if there is no program.
        why: why the function was traced or run in this process, or the program made again, if so.
        is_traced_each_time: whether each process traces the function.
        differences: why the program was made: its differences from the nearest other one.
        seconds: what making took on the daemon, by step.
        saved: seconds that making took when the program was made, if it was found.
        calls: number of calls.
        nanoseconds: how long the process waited for calls.
        queued: number of the calls that the process did not wait for.
        sent: bytes of the values that calls sent.
        received: bytes of the results that came with the answers.
    """

    number: int
    label: str
    where: str = ""
    level: str = ""
    why: str = ""
    is_traced_each_time: bool = False
    differences: tuple[str, ...] = ()
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    saved: float = 0.0
    calls: int = 0
    nanoseconds: int = 0
    queued: int = 0
    sent: int = 0
    received: int = 0


class Span(NamedTuple):
    """Work of one thread, or of the daemon while that thread waited.

    Attributes:
        lane: number of the thread.
        in_daemon: whether the daemon did the work.
        kind: the step: "capture", "trace", "import", ...
        start: nanoseconds since the time line began.
        end: the same.
        label: the subject of the work.
        program: number of the program that the work is for; None if it is for no single one.
    """

    lane: int
    in_daemon: bool
    kind: str
    start: int
    end: int
    label: str = ""
    program: int | None = None


class Total(NamedTuple):
    """Transfers of one kind, added up."""

    times: int = 0
    nanoseconds: int = 0
    sent: int = 0
    received: int = 0


class _Here(threading.local):
    lane: int | None = None
    program: ProgramRecord | None = None

    def __init__(self) -> None:
        # Kinds and starts of the spans that have not ended.
        self.open: list[tuple[str, int]] = []


class Timeline:
    """Spans of this process since the time line began. Thread-safe.

    The spans of a lane, on one side, are nested or follow each other.
    """

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.clock = clock
        self.origin = clock()
        self.began = time()
        self.spans: list[Span] = []
        self.dropped = 0
        self.threads: list[str] = []
        self.programs: list[ProgramRecord] = []
        self.totals: collections.defaultdict[str, Total] = collections.defaultdict(Total)
        self.daemon: int | None = None
        """Process id of the daemon, once it is known."""
        self._sums = collections.Counter[str]()
        self._lock = threading.RLock()
        self._here = _Here()

    def unlock(self) -> None:
        """Replace the lock in the only thread of a forked child: another thread of the parent may hold it."""
        self._lock = threading.RLock()

    def now(self) -> int:
        """Return the nanoseconds since the time line began."""
        return self.clock() - self.origin

    @contextlib.contextmanager
    def span(self, kind: str, label: str = "") -> Iterator[None]:
        """Add the work of the `with` block."""
        here, start = self._here, self.now()
        here.open.append((kind, start))
        try:
            yield
        finally:
            here.open.pop()
            self.add(kind, start, self.now(), label)

    @contextlib.contextmanager
    def program(self, label: str, where: str) -> Iterator[ProgramRecord]:
        """Add the way to a program, which the `with` block goes, and the program's record."""
        with self._lock:
            record = ProgramRecord(len(self.programs), label, where)
            self.programs.append(record)
        before, self._here.program = self._here.program, record
        try:
            with self.span("program", label):
                yield record
        except BaseException as error:
            record.why = record.why or " ".join(str(error).split()) or type(error).__name__
            raise
        finally:
            self._here.program = before

    def nanoseconds_of(self, kind: str) -> int:
        """Return how long the spans of a kind took together."""
        return self._sums[kind]

    def program_here(self) -> ProgramRecord | None:
        """Return the record of the program that this thread is looking for; None if it looks for none."""
        return self._here.program

    def add(
        self,
        kind: str,
        start: int,
        end: int,
        label: str = "",
        in_daemon: bool = False,
        program: ProgramRecord | None = None,
    ) -> None:
        """Add work of this thread, or of the daemon for it, that has ended."""
        record = program or self._here.program
        number = None if record is None else record.number
        span = Span(self._lane(), in_daemon, kind, start, max(start, end), label, number)
        with self._lock:
            self._sums[kind] += span.end - span.start
            if len(self.spans) < MAX_SPANS:
                self.spans.append(span)
            else:
                self.dropped += 1

    def add_event(self, kind: str, seconds: float, label: str, min_seconds: float = 0.0) -> None:
        """Add work of jax that ends now, and whose duration jax has measured.

        A trace or lowering within our own is left out. An event encloses the earlier ones that began in it, although
        it began a little before its measured start.
        """
        here, end = self._here, self.now()
        if kind in _OWN_TRACES and any(name in _OWN_TRACES for name, _ in here.open):
            return
        if seconds < min_seconds:
            return
        start = max(end - round(seconds * 1e9), here.open[-1][1] if here.open else 0)
        with self._lock:
            lane = self._lane()
            mine = itertools.takewhile(lambda span: span.end > start, self._latest(lane))
            for earlier in mine:
                is_inside = 2 * (earlier.end - max(start, earlier.start)) >= earlier.end - earlier.start
                start = min(start, earlier.start) if is_inside else max(start, earlier.end)
        self.add(kind, start, end, label)

    def count(self, kind: str, record: ProgramRecord | None, start: int, sent: int = 0, received: int = 0) -> None:
        """Count a call of a program, or a transfer without one, that ends now; add a span if it took long."""
        end = self.now()
        with self._lock:
            if record is None:
                total = self.totals[kind]
                is_first = not total.times
                self.totals[kind] = Total(
                    total.times + 1, total.nanoseconds + end - start, total.sent + sent, total.received + received
                )
            else:
                is_first = not record.calls
                record.calls += 1
                record.nanoseconds += end - start
                record.sent += sent
                record.received += received
        if is_first or end - start >= MIN_NANOSECONDS:
            self.add(kind, start, end, "" if record is None else record.label, program=record)

    def _latest(self, lane: int) -> Iterator[Span]:
        return (span for span in reversed(self.spans) if span.lane == lane and not span.in_daemon)

    def _lane(self) -> int:
        if self._here.lane is None:
            with self._lock:
                self._here.lane = len(self.threads)
                self.threads.append(threading.current_thread().name)
        return self._here.lane


def nested(spans: Sequence[Span]) -> list[tuple[Span, int]]:
    """Return the spans of one lane and side in the order of their starts, each with the number of those around it."""
    found, around = [], list[int]()
    # An outer span ends after the inner ones, and is added later.
    numbered = sorted(enumerate(spans), key=lambda item: (item[1].start, -item[1].end, -item[0]))
    for _, span in numbered:
        while around and around[-1] <= span.start:
            around.pop()
        end = min([span.end, *around[-1:]])
        found.append((span._replace(end=end), len(around)))
        around.append(end)
    return found
