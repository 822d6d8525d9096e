"""Events of this process, of which its reports are made: which thread did what, and when, and how often.

Only counts and the latest events are kept, unless a report that draws the run is asked for.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jitclient.core.clock import perf_counter_ns, time

KEPT = 1000
"""Number of the latest events that are kept if no report needs them all."""

MAX_EVENTS = 20_000
"""Maximum number of events of a report; later ones are only counted."""

MIN_NANOSECONDS = 1_000_000
"""Minimum duration of a call or a transfer with an event of its own, unless it is the first of its program."""

_OWN_TRACES = ("trace", "lower")


@dataclasses.dataclass(eq=False)
class Total:
    """Calls of a program, or transfers of one kind, added up.

    Attributes:
        times: how many there were.
        nanoseconds: how long the process waited for them.
        sent: bytes of the values that they sent.
        received: bytes of the results that came with the answers.
    """

    times: int = 0
    nanoseconds: int = 0
    sent: int = 0
    received: int = 0


@dataclasses.dataclass(eq=False)
class ProgramRecord(Total):
    """Program that this process looked for, and its calls.

    Attributes:
        number: position among those of the report; -1 if none is asked for.
        label: name and arguments.
        where: file and line of the function.
        level: where the program was found, or "made"; empty if there is no program.
        why: why the function was traced or run in this process, or the program made again, if so.
        is_traced_each_time: whether each process traces the function.
        differences: why the program was made: its differences from the nearest other one.
        seconds: what making took on the daemon, by step.
        saved: seconds that making took when the program was made, if it was found.
        queued: number of the calls that the process did not wait for.
    """

    number: int = -1
    label: str = ""
    where: str = ""
    level: str = ""
    why: str = ""
    is_traced_each_time: bool = False
    differences: tuple[str, ...] = ()
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    saved: float = 0.0
    queued: int = 0


class Event(NamedTuple):
    """Work of one thread, or of the daemon while that thread waited.

    Attributes:
        kind: the step: "capture", "trace", "import", ...
        label: the subject of the work.
        start: nanoseconds on the log's clock.
        end: the same.
        thread: number and name of the thread.
        in_daemon: whether the daemon did the work.
        program: the program that the work is for; None if it is for no single one.
    """

    kind: str
    label: str
    start: int
    end: int
    thread: tuple[int, str]
    in_daemon: bool = False
    program: ProgramRecord | None = None


class Started(NamedTuple):
    """Program that this process runs, for its reports.

    Attributes:
        name: path of a script, or `-m` and the name of a module.
        packages: the installed packages whose jits run on the daemon.
        preloaded: how many modules a helper has imported, and the seconds that this took; None without a helper.
        why_fresh: why a run has no helper; empty if it has one, or is not `jitserver run`.
    """

    name: str = ""
    packages: Sequence[str] = ()
    preloaded: tuple[int, float] | None = None
    why_fresh: str = ""


class _Here(threading.local):
    thread: tuple[int, str] | None = None
    program: ProgramRecord | None = None

    def __init__(self) -> None:
        # Kinds and starts of the spans that have not ended.
        self.open: list[tuple[str, int]] = []
        self.observers: tuple[Callable[[str], None], ...] = ()


class Log:
    """Events and counts of this process. Thread-safe.

    The events of a thread, on one side, are nested or follow each other.
    """

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.now = clock
        self._here = _Here()
        self._numbers = itertools.count()
        self.clear()

    def clear(self) -> None:
        """Forget all. The only thread of a forked child calls this, and another of the parent may hold the lock."""
        self._lock = threading.RLock()  # a signal handler may add, too
        self.counts: dict[tuple[str, ...], tuple[int, float]] = {}
        self.is_asked = False
        """Whether a report needs all events."""
        self.started = Started()
        self._begin(KEPT)

    def start(self, started: Started) -> None:
        """Note which program this process runs."""
        self.started = started

    def ask(self) -> None:
        """Keep all events from now on, unless that has begun."""
        with self._lock:
            if not self.is_asked:
                self.is_asked = True
                self._begin(None)

    def _begin(self, most: int | None) -> None:
        self.origin, self.began = self.now(), time()
        self.events = collections.deque[Event](maxlen=most)
        self.dropped = 0
        self.programs: list[ProgramRecord] = []
        """Programs of the report."""
        self.transfers: collections.defaultdict[str, Total] = collections.defaultdict(Total)
        self.daemon: int | None = None
        """Process id of the daemon, once it is known."""

    # ---- counts

    def count(self, *key: str, seconds: float = 0.0) -> None:
        """Count once more what the key names, and add the seconds that it took or saved."""
        with self._lock:
            times, before = self.counts.get(key, (0, 0.0))
            self.counts[key] = times + 1, before + seconds

    def counted(self, kind: str) -> dict[tuple[str, ...], tuple[int, float]]:
        """Return how often each key of a kind was counted, in order and without the kind, and the seconds."""
        return {key[1:]: found for key, found in sorted(dict(self.counts).items()) if key[0] == kind}

    def total(self, kind: str) -> tuple[int, float]:
        """Return how often keys of a kind were counted, and the seconds."""
        found = self.counted(kind).values()
        return sum(times for times, _ in found), sum((seconds for _, seconds in found), 0.0)

    # ---- events

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
            record = ProgramRecord(label=label, where=where)
            if self.is_asked:
                record.number = len(self.programs)
                self.programs.append(record)
        before, self._here.program = self._here.program, record
        try:
            with self.span("program", label):
                yield record
        except BaseException as error:
            if self.is_asked:
                record.why = record.why or " ".join(str(error).split()) or type(error).__name__
            raise
        finally:
            self._here.program = before

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
    ) -> Event:
        """Add work of this thread, or of the daemon for it, that has ended; return the event."""
        event = Event(kind, label, start, max(start, end), self._thread(), in_daemon, program or self._here.program)
        with self._lock:
            if self.is_asked and len(self.events) >= MAX_EVENTS:
                self.dropped += 1
            else:
                self.events.append(event)
        return event

    def begin(self, phase: str) -> None:
        """Begin a phase of this thread's work, which lasts until its next; tell the observers, the innermost first."""
        for observer in reversed(self._here.observers):
            observer(phase)

    @contextlib.contextmanager
    def observed_by(self, *observers: Callable[[str], None], alone: bool = False) -> Iterator[None]:
        """Tell functions of each phase that begins in the `with` block; with `alone`, no others meanwhile."""
        here = self._here
        before, here.observers = here.observers, observers if alone else (*here.observers, *observers)
        try:
            yield
        finally:
            here.observers = before

    @contextlib.contextmanager
    def phases(self, first: str) -> Iterator[list[Event]]:
        """Add the phases of the `with` block, of which `first` is the time before any other; yield the list of them."""
        begun, done = [(first, self.now())], list[Event]()
        try:
            with self.observed_by(lambda phase: begun.append((phase, self.now()))):
                yield done
        finally:
            ends = [start for _, start in begun[1:]] + [self.now()]
            done += [self.add(phase, start, end) for (phase, start), end in zip(begun, ends, strict=True)]

    def add_measured(self, kind: str, seconds: float, label: str) -> None:
        """Add work of jax that ends now, and whose duration jax has measured.

        A trace or lowering within our own is left out. An event encloses the earlier ones that began in it, although
        it began a little before its measured start.
        """
        here, end = self._here, self.now()
        if kind in _OWN_TRACES and any(name in _OWN_TRACES for name, _ in here.open):
            return
        start = max(end - round(seconds * 1e9), here.open[-1][1] if here.open else 0)
        with self._lock:
            thread = self._thread()
            for earlier in (event for event in reversed(self.events) if event[4:6] == (thread, False)):
                if earlier.end <= start:
                    break
                is_inside = 2 * (earlier.end - max(start, earlier.start)) >= earlier.end - earlier.start
                start = min(start, earlier.start) if is_inside else max(start, earlier.end)
        self.add(kind, start, end, label)

    def add_call(self, kind: str, record: ProgramRecord | None, start: int, sent: int = 0, received: int = 0) -> None:
        """Add up a call of a program, or a transfer without one, that ends now; add an event if it took long."""
        end = self.now()
        with self._lock:
            total = self.transfers[kind] if record is None else record
            total.times += 1
            total.nanoseconds += end - start
            total.sent += sent
            total.received += received
        if total.times == 1 or end - start >= MIN_NANOSECONDS:
            self.add(kind, start, end, "" if record is None else record.label, program=record)

    def _thread(self) -> tuple[int, str]:
        if self._here.thread is None:
            self._here.thread = next(self._numbers), threading.current_thread().name
        return self._here.thread


log = Log()
"""Events of this process."""


def _after_fork() -> None:
    log.clear()


os.register_at_fork(after_in_child=_after_fork)
