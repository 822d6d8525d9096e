"""What keeps a session alive between exchanges: connecting and resuming, forks, and idle work."""

import contextlib
import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from jitclient.core.settings import Settings
from jitclient.errors import DaemonError, DaemonLost, DaemonSilent, JitserverError, NotSent, SessionBusy
from jitclient.session import agreement
from jitclient.session.background import SOON_SECONDS, Background
from jitclient.session.blocks import IDLE_SECONDS, Blocks
from jitclient.session.handshake import ClientId, Finder
from jitclient.session.pipeline import Drops, Pipeline
from jitclient.session.retry import ATTEMPTS, RetryPolicy
from jitclient.wire.address import Address, remote
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import Run

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

_DRAIN_SECONDS = 2.0
_LATER_SECONDS = 0.005
_QUIET_TICKS = 10
BUSY = "this thread is in the middle of a call: signal handlers and destructors must not read arrays"
_FORGOTTEN = "the daemon that held it has ended, or waited too long for this program to reconnect"
T = TypeVar("T")


class Link:
    """A session's link to its daemon, or to the daemon that replaced it.

    `generation` rises when the daemon no longer has the session: handles and programs are void then.
    `program_generation` also rises when a new daemon took the session over: it has the arrays, but must be asked for
    programs again.
    """

    def __init__(self, chosen: Settings) -> None:
        self.settings = chosen
        self.generation = 0
        self.program_generation = 0
        self.why_lost = _FORGOTTEN
        self.address: Address | SshAddress | None = None
        self._installed: Mapping[str, str] = {}  # packages of the daemon's environment, if it is on another machine
        self.platform = ""
        self.connection: ClientConnection | None = None
        self.next_handle = 1
        """The handle of the next array."""
        self._identity = ClientId()
        self._process = b""  # identifies the daemon
        self._begun = 0  # number of our last Run that the daemon had begun when we connected
        self._finder = Finder(chosen)
        self._joined = False  # whether this is a forked child that shares its parent's session
        self._seen = (0, 0)  # the pipeline's progress at the last idle check
        self._reset()
        _links.add(self)

    def _reset(self) -> None:
        """Set up the state that a forked child does not share with its parent."""
        self.lock = threading.RLock()
        self._depth = 0  # of `aside`
        self._came_back = threading.Condition(self.lock)
        self.drops = Drops()
        self.background = Background(self._tidy, _QUIET_TICKS)
        self._pipeline = Pipeline()
        self._watch = Background(self._tidy_blocks)
        self._exchanging = False

    # ---- connecting

    def __enter__(self) -> Self:
        """Connect, and hold the lock for several steps."""
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
        """Return the connection; connect, and resume the session, if there is none. Called with the `lock` held.

        Raises:
            DaemonUnavailable, Incompatible, NotSent: no daemon could be reached.
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
            self._installed = welcome.installed
            self._process, self._begun = welcome.process, welcome.begun
            self._identity = dataclasses.replace(self._identity, token=welcome.token)
            self.next_handle = welcome.first_handle
            self.connection = reached.connection
            try:
                lends = welcome.lends and reached.connection.can_share()
                self._pipeline.blocks = Blocks(reached.connection, self._watch.wake) if lends else None
                with self._guarded() as connection:
                    self.drops.extend(self._pipeline.resume(connection, welcome.begun))
            except BaseException as error:  # retry later: unanswered Runs must be the first that the connection carries
                self.disconnect(error)
                if isinstance(error, DaemonLost) and not isinstance(error, DaemonSilent):
                    raise NotSent(str(error)) from error  # of the request that needs this connection
                raise
            if self.drops:
                self.background.wake()
        return self.connection

    def check_packages(self, names: Iterable[str]) -> None:
        """Compare packages with those of the daemon, if it is on another machine and has an environment of its own.

        Raises:
            Incompatible: they differ.
        """
        with self:
            far = remote(self.settings.address)
            if far is not None:
                agreement.check_packages(names, self._installed, far)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[ClientConnection]:
        with self.lock:
            if self._exchanging:  # this thread has the lock already: it would read another request's answer
                raise SessionBusy(BUSY)
            connection = self.connect()
            self._exchanging = True
            try:
                yield connection
            except BaseException as error:
                self.disconnect(error)
                raise
            finally:
                self._exchanging = False

    def disconnect(self, why: BaseException | None = None) -> None:
        """Close the connection; the next exchange reconnects, but not at once to a daemon that hangs."""
        with self.lock:
            if isinstance(why, DaemonSilent):
                self._finder.give_up(why)
            connection, self.connection = self.connection, None
            self._pipeline.blocks = None
            if connection is not None:
                connection.close()

    def forget_programs(self) -> None:
        """Ask the daemon for each program again: it has lost one."""
        self.program_generation += 1

    def retrying(self, attempt: Callable[[], T], repeats: int = 0) -> T:
        """Call `attempt`, again if the daemon ended and `RetryPolicy` allows it; return its result."""
        policy = RetryPolicy(self.disconnect, repeats)
        while True:
            try:
                return attempt()
            except DaemonError as error:
                if not policy.retries(error):
                    raise

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the session to others for a while, in the middle of an exchange: calls that this thread or another
        makes meanwhile go over a connection of their own. Called with the `lock` held, which is released meanwhile.
        """
        apart = {"connection": None, "_pipeline": Pipeline(), "_exchanging": False}
        kept = self._swap(apart | {"_identity": ClientId(self._identity.token), "_begun": 0, "next_handle": 0})
        depth = self._depth = self._depth + 1
        lock = self.lock
        held = lock._release_save()  # type: ignore[attr-defined]  # as threading.Condition does
        try:
            yield
        finally:
            if self.lock is lock:
                self._come_back(held, depth, kept)
            else:  # a fork in between: this is the child
                lock._at_fork_reinit()  # type: ignore[attr-defined]
                lock._acquire_restore(held)  # type: ignore[attr-defined]
                if kept["connection"] is not None:
                    kept["connection"].abandon()
        if self.lock is not lock:
            raise NotSent("this process was forked in the middle of an exchange, which its parent goes on with")

    @property
    def is_aside(self) -> bool:
        """Whether a thread has left the session to others. Read with the `lock` held."""
        return self._depth > 0

    def _come_back(self, held: Any, depth: int, kept: dict[str, Any]) -> None:
        self.lock._acquire_restore(held)  # type: ignore[attr-defined]
        # Another thread may be aside of what this one made room for.
        self._came_back.wait_for(lambda: self._depth == depth)
        try:
            if self.connection is not None:
                with contextlib.suppress(JitserverError):
                    self._drain()
        finally:
            self.disconnect()
            self._swap(kept)
            self._depth -= 1
            self._came_back.notify_all()

    def _swap(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Set attributes; return what they were."""
        before = {name: getattr(self, name) for name in attributes}
        for name, value in attributes.items():
            setattr(self, name, value)
        return before

    # ---- forks

    def before_fork(self) -> None:
        """In the parent: wait for pending calls, whose results the child may use; stop the background thread; and
        retire shared memory that the child may read.
        """
        if self._pipeline and self.lock.acquire(timeout=_DRAIN_SECONDS):
            try:
                if not self._exchanging:
                    with contextlib.suppress(JitserverError):
                        self.retrying(self._drain, ATTEMPTS)  # the pipeline resends no Run that was begun
            finally:
                self.lock.release()
        self.background.rest()
        if self._pipeline.blocks is not None:
            self._pipeline.blocks.retire_read()

    def _drain(self) -> None:
        with self._guarded() as connection:
            self._pipeline.drain(connection)

    def after_fork(self) -> None:
        """In the child: leave the connection to the parent, and join its session with the next exchange."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()
        self._reset()  # the child may use inherited handles, but must not free them
        self._joined = True
        self._identity = ClientId(self._identity.token)

    # ---- idle work

    def _tidy(self) -> tuple[bool, float]:
        """Send queued calls and dropped handles once the program pauses: until then, they go with its own calls.

        Returns:
            Whether anything was pending, and the seconds until the next check.
        """
        before, self._seen = self._seen, self._pipeline.progress()
        pending = bool(self._pipeline or self.drops)
        if pending and before == self._seen and self.lock.acquire(blocking=False):
            try:
                if self.connection is None:
                    return False, _LATER_SECONDS  # the next exchange reconnects and sends them
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
        if self.drops and not self._pipeline:  # otherwise they go with the next call
            with self._guarded() as connection:
                self._pipeline.ask(connection, Run(drop=self.drops.take()))

    def _tidy_blocks(self) -> tuple[bool, float]:
        """Return idle shared memory unless the connection is in use; whether to check again, and when."""
        pause = IDLE_SECONDS / 2
        if not self.lock.acquire(blocking=False):
            return True, pause
        try:
            blocks = self._pipeline.blocks
            if blocks is None or self._exchanging:
                return False, pause
            return blocks.tidy(time.monotonic()), pause
        except JitserverError as error:
            self.disconnect(error)  # half a message may have been sent
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
