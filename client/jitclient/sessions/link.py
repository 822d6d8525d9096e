"""What keeps a session going between the exchanges of its program: its connection, forks, and idle work."""

import contextlib
import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from jitclient.errors import DaemonError, DaemonLost, DaemonSilent, JitserverError, NotSent, SessionBusy
from jitclient.sessions.background import SOON_SECONDS, Background
from jitclient.sessions.blocks import IDLE_SECONDS, Blocks
from jitclient.sessions.drops import Drops
from jitclient.sessions.handshake import Finder, Identity
from jitclient.sessions.pipeline import Pipeline
from jitclient.sessions.retry import ATTEMPTS, RetryPolicy
from jitclient.settings import Settings
from jitclient.wire.address import Address
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import Run

_DRAIN_SECONDS = 2.0
_LATER_SECONDS = 0.005
_QUIET_TICKS = 10
BUSY = "this thread is in the middle of a call: signal handlers and destructors must not look at arrays"
_FORGOTTEN = "the daemon that held it has ended, or waited too long for this program to come back"
T = TypeVar("T")


class Link:
    """A session's way to its daemon, and to those that go on in its place. `generation` rises when the daemon has
    forgotten us: handles and programs are then void. `program_generation` rises also when another one goes on: it has
    the arrays, and is to be asked for programs anew.
    """

    def __init__(self, chosen: Settings) -> None:
        self.settings = chosen
        self.generation = 0
        self.program_generation = 0
        self.why_lost = _FORGOTTEN
        self.address: Address | None = None
        self.platform = ""
        self.connection: ClientConnection | None = None
        self.next_handle = 1
        """The name of the next array to come."""
        self._identity = Identity()
        self._process = b""  # which daemon it was
        self._begun = 0  # the last of our Runs that it has begun, when we connected
        self._finder = Finder(chosen)
        self._joined = False  # by a forked child, whose parent's it is
        self._seen = (0, 0)  # how far the program had come when the background looked
        self._reset()
        _links.add(self)

    def _reset(self) -> None:
        """Sets what belongs to this process alone."""
        self.lock = threading.RLock()
        self.drops = Drops()
        self.background = Background(self._tidy, _QUIET_TICKS)
        self._pipeline = Pipeline()
        self._watch = Background(self._tidy_blocks)
        self._exchanging = False

    # ---- connecting

    def __enter__(self) -> Self:
        """Holds the session for several steps that belong together, and connects it first."""
        self.lock.acquire()
        if self.connection is None:
            try:
                self.connect()
            except BaseException:
                self.lock.release()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    def connect(self) -> ClientConnection:
        """The connection, made if there is none; a session that the daemon knows goes on. Called with the `lock`.

        Raises:
            DaemonUnavailable, Incompatible, NotSent: there is none to be had.
        """
        if self.connection is None:
            reached = self._finder.reach(self._identity)
            welcome = reached.welcome
            if welcome.process != self._process:
                self.program_generation += 1
            if not welcome.resumed:
                self.generation += 1
                self.program_generation += 1
                self.why_lost = welcome.lost or _FORGOTTEN
                self.drops = Drops()
                self._pipeline = Pipeline()
            self.address, self.platform = reached.address, welcome.platform
            self._process, self._begun = welcome.process, welcome.begun
            self._identity = dataclasses.replace(self._identity, token=welcome.token)
            self.next_handle = welcome.first_handle
            self.connection = reached.connection
            try:
                lends = welcome.lends and reached.connection.can_share()
                self._pipeline.blocks = Blocks(reached.connection, self._watch.wake) if lends else None
                with self._guarded() as connection:
                    self.drops.extend(self._pipeline.resume(connection, welcome.begun))
            except BaseException as error:  # what is to be sent again must be the first
                self.disconnect()
                if isinstance(error, DaemonLost) and not isinstance(error, DaemonSilent):
                    raise NotSent(str(error)) from error  # of what is about to be asked, nothing was
                raise
            if self.drops:
                self.background.wake()
        return self.connection

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[ClientConnection]:
        with self.lock:
            if self._exchanging:  # the lock is this thread's own: the answer would go to the wrong asker
                raise SessionBusy(BUSY)
            connection = self.connect()
            self._exchanging = True
            try:
                yield connection
            except BaseException:
                self.disconnect()
                raise
            finally:
                self._exchanging = False

    def disconnect(self) -> None:
        """Drops the connection; the next exchange connects again."""
        with self.lock:
            connection, self.connection = self.connection, None
            self._pipeline.blocks = None
            if connection is not None:
                connection.close()

    def forget_programs(self) -> None:
        """From now on the daemon is asked again for each program: it has lost one."""
        self.program_generation += 1

    def retrying(self, attempt: Callable[[], T], repeats: int = 0) -> T:
        """What it returns; another attempt where the daemon ended, or is about to, as `RetryPolicy` says."""
        policy = RetryPolicy(self.disconnect, repeats)
        while True:
            try:
                return attempt()
            except DaemonError as error:
                if not policy.retries(error):
                    raise

    # ---- forks

    def before_fork(self) -> None:
        """In the parent: has what is under way done, as the child may ask for it; has no thread that it catches; and
        writes no memory any more that the child may read.
        """
        if self._pipeline and self.lock.acquire(timeout=_DRAIN_SECONDS):
            try:
                if not self._exchanging:
                    with contextlib.suppress(JitserverError):
                        self.retrying(self._drain, ATTEMPTS)  # what was begun is not: the pipeline knows
            finally:
                self.lock.release()
        self.background.rest()
        if self._pipeline.blocks is not None:
            self._pipeline.blocks.retire_read()

    def _drain(self) -> None:
        with self._guarded() as connection:
            self._pipeline.drain(connection)

    def after_fork(self) -> None:
        """In the child: leaves the connection to the parent, and joins its session at the next exchange."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()
        self._reset()  # what it inherited it may read, never free
        self._joined = True
        self._identity = Identity(self._identity.token)

    # ---- idle work

    def _tidy(self) -> tuple[bool, float]:
        """Sends what is queued and tells of dropped handles, once the program has paused: until then its own calls do.
        Returns whether there was something, and in how many seconds to look again.
        """
        before, self._seen = self._seen, self._pipeline.progress()
        pending = bool(self._pipeline or self.drops)
        if pending and before == self._seen and self.lock.acquire(blocking=False):
            try:
                if self.connection is None:
                    return False, _LATER_SECONDS  # the next exchange connects, and sends it
                with contextlib.suppress(JitserverError):
                    self._send_pending()
            finally:
                self.lock.release()
        _, queued = self._seen
        return pending, SOON_SECONDS if queued else _LATER_SECONDS

    def _send_pending(self) -> None:
        if self._pipeline:
            with self._guarded() as connection:
                self._pipeline.push(connection)
        if self.drops and not self._pipeline:  # else they go with the next call
            with self._guarded() as connection:
                self._pipeline.ask(connection, Run(drop=self.drops.take()))

    def _tidy_blocks(self) -> tuple[bool, float]:
        """Gives back shared memory that is not used, unless somebody is using the connection; whether any is left."""
        pause = IDLE_SECONDS / 2
        if not self.lock.acquire(blocking=False):
            return True, pause
        try:
            blocks = self._pipeline.blocks
            if blocks is None or self._exchanging:
                return False, pause
            return blocks.tidy(time.monotonic()), pause
        except JitserverError:
            self.disconnect()  # half a message may be sent; the next exchange connects again
            return False, pause
        finally:
            self.lock.release()


_links: "weakref.WeakSet[Link]" = weakref.WeakSet()


def _before_fork() -> None:
    for link in list(_links):
        link.before_fork()


def _after_fork() -> None:
    for link in list(_links):
        link.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
