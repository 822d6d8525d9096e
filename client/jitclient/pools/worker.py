"""Worker: the process that runs tasks on a host, `jitserver pool-worker`.

The main thread runs the tasks. One thread reads what the driver sends, and ends the process at once when the driver has
closed the connection; another one reports every second. Standard output and error are the command's standard error: the
command's own standard output carries the frames.
"""

import collections
import contextlib
import functools
import os
import queue
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from jitclient.core import first_use
from jitclient.core.clock import monotonic
from jitclient.core.settings import settings
from jitclient.core.threads import Thread
from jitclient.pools import outcomes, pickling
from jitclient.pools.frames import Frames
from jitclient.pools.imports import DriverModules
from jitclient.pools.messages import (
    BEAT_SECONDS,
    GREETING,
    Alive,
    Begin,
    Begun,
    Calls,
    End,
    Function,
    Hello,
    Modules,
    Report,
    Source,
    ToWorker,
    Wanted,
)
from jitclient.pools.versions import installed

_PATIENCE = 10
"""Times the driver's patience: a driver on a laptop that sleeps for a minute finds its workers."""


def run() -> None:
    """Run tasks until the driver has no more of them, or is gone."""
    # The report of JITSERVER_REPORT is the driver's.
    first_use.forget()
    frames = _take_standard_streams()
    _become_program()
    frames.send(Hello(os.getpid(), socket.gethostname(), dict(installed())))
    worker = _Worker(frames)
    try:
        worker.run()
    finally:
        worker.close()


def _take_standard_streams() -> Frames:
    """Return the channel to the driver, and give the tasks other streams."""
    os.write(1, GREETING)
    source, target = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return Frames(source, target, _PATIENCE * settings().timeout)


def _become_program() -> None:
    """Make this process one in which the program's code runs: with a session and a `__main__` of its own."""
    with contextlib.suppress(OSError):  # it has one already
        os.setsid()
    # Ctrl-C in the driver's terminal is the driver's. Programs that a task starts do not inherit a handler.
    signal.signal(signal.SIGINT, lambda *_: None)
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = sys.argv[:1]


class _Worker:
    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._where = f"{socket.gethostname()} (pid {os.getpid()})"
        self._inbox: queue.SimpleQueue[tuple[Any, bytearray]] = queue.SimpleQueue()
        self._sources: queue.SimpleQueue[tuple[Source, bytearray]] = queue.SimpleQueue()
        self._functions: dict[bytes, Callable[..., Any]] = {}
        self._pickles: dict[bytes, bytearray] = {}
        self._modules: DriverModules | None = None
        self._asking = threading.Lock()
        # Calls that have not begun, and outcomes that are not reported. Operations of a deque are atomic.
        self._waiting: collections.deque[Any] = collections.deque()
        self._done: collections.deque[outcomes.Outcome] = collections.deque()
        self._reporting = threading.Lock()
        self._batch_began = self._reported = 0.0

    def run(self) -> None:
        Thread(self._read, "pool: reader").start()
        Thread(self._beat, "pool: beat").start()
        while True:
            message, body = self._inbox.get()
            if isinstance(message, Begin):
                self._begin(message, body)
            elif isinstance(message, Modules):
                assert self._modules is not None
                self._modules.names = frozenset(message.modules)
            elif isinstance(message, Function):
                self._learn(message, body)
            elif isinstance(message, Calls):
                self._work(self._function(message.function), body)
            else:
                return

    def close(self) -> None:
        if self._modules is not None:
            self._modules.remove_files()

    # ---- the main thread

    def _begin(self, message: Begin, body: bytearray) -> None:
        if message.program:
            # Statistics count this process as one of the program's.
            sys.modules["__main__"].__file__ = message.program
        self._modules = DriverModules(self._ask, message.modules)
        self._modules.install()
        outcome = self._outcome(_load_and_call, (body,), "the initializer")
        self._send(Begun(), pickling.dumps_in_worker(outcome))

    def _learn(self, message: Function, body: bytearray) -> None:
        if message.forget is not None:
            self._functions.pop(message.forget, None)
            self._pickles.pop(message.forget, None)
        self._pickles[message.digest] = body

    def _function(self, key: bytes) -> Callable[..., Any]:
        """Return a function. One that cannot be unpickled now, for lack of a module, may be later."""
        if key not in self._functions:
            try:
                self._functions[key] = pickling.loads(self._pickles[key])
            except Exception as error:
                return functools.partial(_raise, error)
            del self._pickles[key]
        return self._functions[key]

    def _work(self, function: Callable[..., Any], body: bytearray) -> None:
        waiting, done, outcome_of = self._waiting, self._done, self._outcome
        self._batch_began = self._reported = monotonic()
        waiting.extend(pickling.loads(body))
        name = getattr(function, "__qualname__", type(function).__qualname__)
        while True:
            try:
                call = waiting.popleft()
            except IndexError:
                break
            done.append(outcome_of(function, call, name))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # a task may have closed or replaced it
                stream.flush()
        self._report(is_last=True)

    def _outcome(self, function: Callable[..., Any], call: Any, name: str) -> outcomes.Outcome:
        try:
            args, kwargs = call.load() if type(call) is pickling.Snapshot else (call, {})
            value = function(*args, **kwargs)
        except BaseException as error:
            return outcomes.raised(error, self._where)
        return outcomes.returned(value, name)

    def _report(self, is_last: bool) -> None:
        with self._reporting:
            unstarted = 0
            now = monotonic()
            if not is_last and now - self._batch_began > BEAT_SECONDS:
                # A call takes long, so others should not wait for it.
                while self._waiting:
                    with contextlib.suppress(IndexError):
                        self._waiting.pop()
                        unstarted += 1
            found = [self._done.popleft() for _ in range(len(self._done))]
            seconds = now - self._reported
            if found:
                self._reported = now
            self._send(Report(seconds, unstarted, is_last), pickling.dumps_in_worker(found) if found else b"")

    # ---- other threads

    def _beat(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(BEAT_SECONDS)
            self._report(is_last=False)

    def _read(self) -> None:
        try:
            message: object = None
            while not isinstance(message, End):
                message, body = self._frames.receive(ToWorker)  # type: ignore[arg-type]
                if isinstance(message, Source):
                    self._sources.put((message, body))
                elif not isinstance(message, Alive):
                    self._inbox.put((message, body))
        except BaseException:
            self._exit_at_once()

    def _send(self, message: msgspec.Struct, body: bytes = b"") -> None:
        try:
            self._frames.send(message, body)
        except OSError:
            self._exit_at_once()

    def _exit_at_once(self) -> NoReturn:
        """Exit because the driver is gone, with the processes that the tasks started."""
        self.close()
        if os.getsid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    def _ask(self, name: str) -> tuple[Source, bytearray]:
        with self._asking:
            self._send(Wanted(name))
            return self._sources.get()


def _raise(error: Exception, *_: Any, **__: Any) -> NoReturn:
    raise error


def _load_and_call(data: bytearray) -> None:
    if data:
        pickling.loads(data)()
