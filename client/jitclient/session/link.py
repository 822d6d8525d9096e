"""Link of a session to its daemon between exchanges: connecting and resuming, forks, and idle work."""

import collections
import contextlib
import dataclasses
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from jitclient.core.clock import monotonic
from jitclient.core.settings import Settings
from jitclient.errors import DaemonLost, DaemonSilent, JitserverError, NotSent, SessionBusy
from jitclient.session import versions
from jitclient.session.background import SOON_SECONDS, Background
from jitclient.session.blocks import IDLE_SECONDS, Blocks
from jitclient.session.handshake import ClientId, Finder
from jitclient.session.outbox import Drops
from jitclient.session.pipeline import Pipeline
from jitclient.session.retry import ATTEMPTS, with_retries
from jitclient.wire.address import Address, remote
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import Run, Welcome

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

_DRAIN_SECONDS = 2.0
_LATER_SECONDS = 0.005
_QUIET_TICKS = 10
BUSY = "this thread is already in a call. Signal handlers and destructors must not read arrays."
_FORGOTTEN = "the daemon exited, or discarded the session after waiting too long for this program"


class Link:
    """Link of a session to its daemon, or to the daemon that replaced it.

    `generation` rises when the daemon no longer has the session: its handles and programs are then invalid.
    `program_generation` also rises when a new daemon took the session over: that daemon has the arrays, but must be
    asked for programs again.
    """

    def __init__(self, chosen: Settings) -> None:
        self.settings = chosen
        self.generation = 0
        self.program_generation = 0
        self.why_lost = _FORGOTTEN
        self.address: Address | SshAddress | None = None
        # Packages of the daemon's environment, if it is on another machine.
        self._installed: Mapping[str, str] = {}
        self.platform = ""
        self.devices = 0
        self.finishes_calls = True
        """Whether the daemon has computed the results of a call when it answers."""
        self.connection: ClientConnection | None = None
        self.next_handle = 1
        """Handle of the next array."""
        self._identity = ClientId()
        self.daemon_process = b""
        """Identifier of the daemon process."""
        # Number of this client's last Run that the daemon had begun at the time of the connection.
        self._begun = 0
        self._finder = Finder(chosen)
        # Whether this is a forked child that shares its parent's session.
        self._joined = False
        self._seen = (0, 0)  # the outbox's progress at the last idle check
        self._reset()
        _links.add(self)

    def _reset(self) -> None:
        """Set up the state that a forked child does not share with its parent."""
        self.lock = threading.RLock()
        self._depth = 0  # nesting depth of `yielded`
        self._depth_changed = threading.Condition(self.lock)
        # Connections for later contexts of `yielded`, each with the state that belongs to it, and the daemon process.
        self._spares: list[tuple[bytes, dict[str, Any]]] = []
        self.drops = Drops()
        self.released: collections.deque[tuple[int, int]] = collections.deque()
        """Programs that are gone, by program generation and number. Appending is safe inside garbage collections."""
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
        """Return the connection; if there is none, connect and resume the session. Called with the `lock` held.

        Raises:
            DaemonUnavailable, Incompatible, NotSent: no daemon could be reached.
        """
        if self.connection is None:
            reached = self._finder.reach(self._identity)
            welcome = reached.welcome
            self._enter(welcome)
            self.address, self.connection = reached.address, reached.connection
            try:
                lends = welcome.lends and reached.connection.can_share()
                self._pipeline.blocks = Blocks(reached.connection, self._watch.wake) if lends else None
                with self._guarded() as connection:
                    # Before anything is sent, because this connection may break, too.
                    self.drops.extend(self._pipeline.outbox.resume(welcome.begun))
                    self._pipeline.resend(connection)
            except BaseException as error:
                # Retry on a later connection: unanswered Runs must be the first messages on it.
                self.disconnect(error)
                if isinstance(error, DaemonLost) and not isinstance(error, DaemonSilent):
                    # The request that needs this connection was not sent.
                    raise NotSent(str(error)) from error
                raise
            if self.drops:
                self.background.wake()
            if _when_connected is not None:
                _when_connected(self)
        return self.connection

    def _enter(self, welcome: Welcome) -> None:
        """Note which daemon answered, and what is lost if it does not have the session."""
        if welcome.process != self.daemon_process:
            self.program_generation += 1
        if not welcome.resumed:
            self.generation += 1
            self.program_generation += 1
            self.why_lost = welcome.lost or _FORGOTTEN
            self.drops = Drops()
            self._pipeline = Pipeline()
        self.platform, self._installed = welcome.platform, welcome.installed
        self.finishes_calls, self.devices = welcome.finishes_calls, welcome.devices
        self._pipeline.shares_puts = not welcome.finishes_calls
        self.daemon_process, self._begun = welcome.process, welcome.begun
        self._identity = dataclasses.replace(self._identity, token=welcome.token)
        self.next_handle = welcome.first_handle

    def check_packages(self, names: Iterable[str]) -> None:
        """Compare packages with those of the daemon, if it is on another machine and has an environment of its own.

        Raises:
            Incompatible: the packages differ.
        """
        with self:
            remote_address = remote(self.settings.address)
            if remote_address is not None:
                versions.check_packages(names, self._installed, remote_address)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[ClientConnection]:
        with self.lock:
            # This thread already holds the lock, so it would read the answer to another request.
            if self._exchanging:
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
        """Close the connection. The next exchange reconnects, but to a daemon that hangs only after a pause."""
        with self.lock:
            if isinstance(why, DaemonSilent):
                self._finder.mark_hanging(why)
            connection, self.connection = self.connection, None
            self._pipeline.blocks = None
            if connection is not None:
                connection.close()

    def close_spares(self) -> None:
        """Close the connections that are kept for later contexts of `yielded`. Called with the `lock` held."""
        while self._spares:
            self._spares.pop()[1]["connection"].close()

    def forget_programs(self) -> None:
        """Make the client ask the daemon for each program again, because the daemon has lost one."""
        self.program_generation += 1

    @contextlib.contextmanager
    def yielded(self) -> Iterator[None]:
        """Release the session to other users in the middle of an exchange.

        Calls that this thread or another makes inside the context use a connection of their own, which later contexts
        use again: a new one would cost each callback that calls the daemon several round trips. Called with the `lock`
        held, which is released inside the context.

        Raises:
            NotSent: this process was forked inside the context; the exchange belongs to the parent.
        """
        kept = self._swap(self._apart())
        depth = self._depth = self._depth + 1
        lock = self.lock
        held = lock._release_save()  # type: ignore[attr-defined]  # as threading.Condition does
        try:
            yield
        finally:
            if self.lock is lock:
                self._reacquire(held, depth, kept)
            else:
                # This process is the child of a fork inside the context.
                lock._at_fork_reinit()  # type: ignore[attr-defined]
                lock._acquire_restore(held)  # type: ignore[attr-defined]
                if kept["connection"] is not None:
                    kept["connection"].abandon()
        if self.lock is not lock:
            raise NotSent("this process was forked during an exchange, which belongs to its parent")

    @property
    def is_yielded(self) -> bool:
        """Whether a thread has released the session to other users by `yielded`. Read with the `lock` held."""
        return self._depth > 0

    def _apart(self) -> dict[str, Any]:
        """Return the state of a connection for use beside the current one."""
        while self._spares:
            process, spare = self._spares.pop()
            if process == self.daemon_process and spare["_identity"].token == self._identity.token:
                return spare
            spare["connection"].close()
        apart = {"connection": None, "_pipeline": Pipeline(), "_exchanging": False}
        return apart | {"_identity": ClientId(self._identity.token), "_begun": 0, "next_handle": 0}

    def _reacquire(self, held: Any, depth: int, kept: dict[str, Any]) -> None:
        self.lock._acquire_restore(held)  # type: ignore[attr-defined]
        # Contexts are nested: another thread may have entered `yielded` after this one, and must leave first.
        self._depth_changed.wait_for(lambda: self._depth == depth)
        is_spare = False
        try:
            # Its connection may have broken, with calls that no daemon has begun.
            if self.connection is not None or self._pipeline.outbox:
                with contextlib.suppress(JitserverError):
                    with_retries(self, self._drain, ATTEMPTS)
                    if self._pipeline.blocks is not None:
                        self._pipeline.blocks.tidy(float("inf"))
                    is_spare = True
        finally:
            if not is_spare:
                self.disconnect()
            process, apart = self.daemon_process, self._swap(kept)
            if is_spare:
                self._spares.append((process, apart))
            self._depth -= 1
            self._depth_changed.notify_all()

    def _swap(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Set attributes; return their previous values."""
        before = {name: getattr(self, name) for name in attributes}
        for name, value in attributes.items():
            setattr(self, name, value)
        return before

    def wait_for_calls(self, timeout: float = -1) -> None:
        """Send the queued calls, and wait until all are answered; at most `timeout` seconds for other threads."""
        if self._pipeline.outbox and self.lock.acquire(timeout=timeout):
            try:
                if not self._exchanging:
                    with contextlib.suppress(JitserverError):
                        # Repeating is safe, because the pipeline resends no Run that was begun.
                        with_retries(self, self._drain, ATTEMPTS)
            finally:
                self.lock.release()

    # ---- forks

    def before_fork(self) -> None:
        """Prepare the parent for a fork.

        Wait for pending calls, whose results the child may use; stop the background thread; and retire shared memory
        that the child may read.
        """
        self.wait_for_calls(_DRAIN_SECONDS)
        self.background.rest()
        # Forked children may call the programs made so far.
        self.released = collections.deque()
        for pipeline in (self._pipeline, *(spare["_pipeline"] for _, spare in self._spares)):
            if pipeline.blocks is not None:
                pipeline.blocks.retire_read()

    def _drain(self) -> None:
        with self._guarded() as connection:
            self._pipeline.drain(connection)

    def after_fork(self) -> None:
        """Leave the connection to the parent in a forked child, whose next exchange joins the parent's session."""
        spares = [spare["connection"] for _, spare in self._spares]
        connection, self.connection = self.connection, None
        for each in (connection, *spares):
            if each is not None:
                each.abandon()
        # The child may use inherited handles, but must not free them.
        self._reset()
        self._joined = True
        self._identity = ClientId(self._identity.token)

    # ---- idle work

    def _tidy(self) -> tuple[bool, float]:
        """Send queued calls and dropped handles once the program pauses: until then, its own calls carry them.

        Returns:
            Whether anything was pending, and the seconds until the next check.
        """
        before, self._seen = self._seen, self._pipeline.outbox.progress()
        pending = bool(self._pipeline.outbox or self.drops)
        if pending and before == self._seen and self.lock.acquire(blocking=False):
            try:
                if self.connection is None:
                    # The next exchange reconnects and sends them.
                    return False, _LATER_SECONDS
                with contextlib.suppress(JitserverError):
                    self._send_pending()
            finally:
                self.lock.release()
        _, queued = self._seen
        return pending, SOON_SECONDS if queued else _LATER_SECONDS

    def _send_pending(self) -> None:
        if self._pipeline.outbox:
            with self._guarded() as connection:
                self._pipeline.push(connection)
        # While calls are pending, the next call carries the drops.
        if self.drops and not self._pipeline.outbox:
            with self._guarded() as connection:
                self._pipeline.ask(connection, Run(drop=self.drops.take()))

    def _tidy_blocks(self) -> tuple[bool, float]:
        """Return idle shared memory unless the connection is in use.

        Returns:
            Whether to check again, and the seconds until then.
        """
        pause = IDLE_SECONDS / 2
        if not self.lock.acquire(blocking=False):
            return True, pause
        try:
            blocks = self._pipeline.blocks
            if blocks is None or self._exchanging:
                return False, pause
            return blocks.tidy(monotonic()), pause
        except JitserverError as error:
            # Half a message may have been sent.
            self.disconnect(error)
            return False, pause
        finally:
            self.lock.release()


_links: "weakref.WeakSet[Link]" = weakref.WeakSet()
_when_connected: Callable[[Link], None] | None = None


def call_when_connected(function: Callable[[Link], None] | None) -> None:
    """Call a function with each link that gets a connection, while the link is locked; no function with None."""
    global _when_connected
    _when_connected = function


def _before_fork() -> None:
    for link in list(_links):
        link.before_fork()


def _after_fork() -> None:
    for link in list(_links):
        link.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
