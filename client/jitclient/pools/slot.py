"""Life of one worker on the driver's side: start it, feed it, and start another one in its place when it is lost."""

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from jitclient.core.notices import print_notice
from jitclient.core.threads import Thread
from jitclient.errors import Incompatible, JitserverError, WorkerLost
from jitclient.pools import outcomes, pickling, sources
from jitclient.pools.hosts import Host
from jitclient.pools.link import Link
from jitclient.pools.messages import BEAT_SECONDS, Alive, Begin, Begun, Calls, End, Function, Modules, Report, Wanted
from jitclient.pools.schedule import Batch, Schedule

_MAX_FUNCTIONS = 64
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 1.0, 30.0


class Context(NamedTuple):
    """Facts that all workers of a pool share.

    Attributes:
        schedule: the calls.
        patience: seconds without a sign of life after which a worker is lost.
        program: path of this program's script; empty if it has none.
        initializer: pickle of a function that each worker calls first; empty for none.
        place: returns the stand-in at a host for an array of a daemon in the arguments of a call.
    """

    schedule: Schedule
    patience: float
    program: str
    initializer: bytes
    place: Callable[[Host, Any], Any]


class Slot:
    """Place of one worker.

    Args:
        number: number of the worker.
        host: where it runs.
        label: its name, for people.
        context: what all workers share.
    """

    def __init__(self, number: int, host: Host, label: str, context: Context) -> None:
        self._number, self._host, self._label, self._context = number, host, label, context
        self._schedule = context.schedule
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._is_killed = False
        self._is_started = False
        self.thread = Thread(self._run, f"pool: {label}")

    def kill(self, unless_started: bool = False) -> None:
        """End the worker now, and start no other one; leave one that has started, if asked to."""
        with self._lock:
            if unless_started and self._is_started:
                return
            self._is_killed, link = True, self._link
        if link is not None:
            link.kill()

    def _run(self) -> None:
        pause, was_started = _MIN_PAUSE_SECONDS, False
        while not self._schedule.is_over():
            try:
                feed = self._start()
            except Exception as error:
                if self._is_killed:
                    return
                # The first start is the pool's to report.
                if was_started and pause == _MIN_PAUSE_SECONDS:
                    print_notice(f"pool: worker {self._label} cannot be started again; trying further ({error})")
                is_final = isinstance(error, Incompatible)
                for failed in self._schedule.not_started(self._number, error, is_final):
                    failed.deliver()
                if is_final or not self._schedule.pause(pause):
                    return
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
                continue
            pause, was_started = _MIN_PAUSE_SECONDS, True
            self._schedule.started(self._number)
            is_lost = self._work(feed)
            self._schedule.stopped(self._number)
            self._is_started = False
            if is_lost:
                feed.link.kill()
            feed.link.close()

    def _start(self) -> "_Feed":
        """Start a worker.

        Raises:
            Exception: there is none; the message says why.
        """
        with self._lock:
            if self._is_killed:
                raise WorkerLost("pool: it was shut down")
            link = self._link = Link(self._host, self._label, self._context.patience)
        try:
            link.greet()
            feed = _Feed(link, self._context)
            feed.begin()
        except BaseException:
            link.kill()
            link.close()
            raise
        self._is_started = True
        return feed

    def _work(self, feed: "_Feed") -> bool:
        """Feed the worker until there is no more work, or it is outdated; return whether it was lost."""
        feed.when_lost = lambda: self._schedule.stopped(self._number)
        while True:
            batch = self._schedule.take(self._number, BEAT_SECONDS)
            try:
                if feed.lost is not None:
                    raise feed.lost
                if batch is None and self._schedule.is_over():
                    feed.end()
                    return False
                if batch is None:
                    feed.link.send(Alive())
                elif feed.is_outdated():
                    self._schedule.give_back(batch.job, batch.indices)
                    batch.indices.clear()
                    feed.end()
                    return False
                else:
                    feed.run(batch)
            except (OSError, EOFError, JitserverError) as error:
                why = feed.link.cause_of(error)
                if not self._is_killed:
                    print_notice(f"pool: worker {self._label} is lost ({why})")
                if batch is not None:
                    said = feed.link.last_lines()
                    for failed in self._schedule.lose(batch, self._number, f"{why}\n{said}" if said else why):
                        failed.deliver()
                return True
            finally:
                if batch is not None:
                    self._schedule.end(batch)


class _Feed:
    """Running worker: what it has of functions and modules, and the batch that it runs.

    One thread sends; a thread of this class receives.
    """

    def __init__(self, link: Link, context: Context) -> None:
        self.link, self._context = link, context
        self.lost: Exception | None = None
        self.when_lost: Callable[[], None] = lambda: None
        self._functions: OrderedDict[bytes, None] = OrderedDict()
        self._files: dict[str, sources.Version] = {}
        self._modules: list[str] = []
        self._batch: Batch | None = None
        self._answered = threading.Event()
        self._begun: outcomes.Outcome | None = None

    def begin(self) -> None:
        """Prepare the worker for calls.

        Raises:
            WorkerLost: the initializer raised an exception, or the worker died.
        """
        Thread(self._receive, f"pool: receiver of {self.link.label}").start()
        try:
            self._modules = sources.top_names()
            self.link.send(Begin(self._modules, self._context.program), self._context.initializer)
            self._wait()
        except (OSError, EOFError, JitserverError) as error:
            why = f"{self.link.cause_of(error)}\n{self.link.last_lines()}".strip()
            raise WorkerLost(f"pool: worker {self.link.label} died during its start: {why}") from error
        assert self._begun is not None
        self.link.begin_watch()
        _, raised = outcomes.result_of(self._begun)
        if raised is not None:
            self.link.kill()
            raise WorkerLost(f"pool: the initializer failed on worker {self.link.label}: {raised!r}") from raised

    def run(self, batch: Batch) -> None:
        """Let the worker run calls, and wait until it has no more of them.

        Raises:
            OSError, EOFError, JitserverError: the worker is lost.
        """
        job, calls = batch.job, self._placed(batch)
        if not calls:
            return
        self._batch = batch
        self.link.forget_lines()
        if (modules := sources.top_names()) != self._modules:
            self._modules = modules
            self.link.send(Modules(modules))
        if job.digest in self._functions:
            self._functions.move_to_end(job.digest)
        else:
            forget = self._functions.popitem(last=False)[0] if len(self._functions) >= _MAX_FUNCTIONS else None
            self._functions[job.digest] = None
            self.link.send(Function(job.digest, forget), job.function)
        self.link.send(Calls(job.digest, len(calls)), pickling.dumps(calls))
        self._wait()

    def end(self) -> None:
        """Ask the worker to exit."""
        with contextlib.suppress(OSError):
            self.link.send(End())

    def is_outdated(self) -> bool:
        """Return whether the program has changed a module since the worker imported it."""
        return any(sources.version_of(path) != version for path, version in self._files.items())

    def _placed(self, batch: Batch) -> list[Any]:
        """Return the arguments of the calls for this worker; a call whose arrays were lost has failed."""
        placed, place = [], functools.partial(self._context.place, self.link.host)
        for index in list(batch.indices):
            call = batch.job.calls[index]
            try:
                has_arrays = type(call) is pickling.Snapshot and call.arrays
                placed.append(call.placed(place) if has_arrays else call)
            except Exception as error:
                self._context.schedule.drop(batch, index, error).deliver()
        return placed

    def _wait(self) -> None:
        while not self._answered.wait(BEAT_SECONDS):
            self.link.send(Alive())
        self._answered.clear()
        if self.lost is not None:
            raise self.lost

    def _receive(self) -> None:
        try:
            while True:
                message, body = self.link.receive()
                if isinstance(message, Report):
                    self._take(message, body)
                elif isinstance(message, Wanted):
                    found = sources.answer(message.name)
                    if found.file is not None:
                        self._files[found.file[0]] = found.file[1]
                    self.link.send(found.message, found.text)
                elif isinstance(message, Begun):
                    self._begun = pickling.loads(body)
                    self._answered.set()
        except Exception as error:
            self.lost = error
            self._answered.set()
            self.when_lost()

    def _take(self, report: Report, body: bytearray) -> None:
        batch = self._batch
        if batch is None:
            return
        found = pickling.loads(body) if body else []
        schedule = self._context.schedule
        done = schedule.finish(batch, len(found), report.seconds)
        if found:
            batch.job.sink.finish(outcomes.results_of(done, found))
        if report.unstarted:
            schedule.give_back(batch.job, [batch.indices.pop() for _ in range(report.unstarted)][::-1])
        if report.is_last:
            self._batch = None
            self._answered.set()
