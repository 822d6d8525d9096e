"""Helper process: has imported the modules that scripts need, and forks a child for each run."""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection
from typing import NoReturn

from jitclient.capture.graph import set_order
from jitclient.core import first_use
from jitclient.core.file_lock import open_lock, try_lock
from jitclient.core.settings import settings
from jitclient.jaxside import internals
from jitclient.wire.address import Address, default_addresses, peer, remote
from jitserver.run import (
    child,
    fast_exit,
    fd_passing,
    helper_address,
    helpers,
    history,
    process_facts,
    random_state,
    scan,
    supervisor,
    user_program,
)
from jitserver.run.audit import RunningAudit
from jitserver.run.fresh_start import FreshStart
from jitserver.run.imports import Imports
from jitserver.run.request import Request
from jitserver.system.process_title import set_title

_TICK_SECONDS = 60.0
_REQUEST_SECONDS = 10.0
_FAILED = 255  # not the number of any system error
_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(path: str, *options: str) -> None:
    """Serve at a path; in each forked process, run the program that a command asks for.

    Args:
        path: path of the socket.
        options: `helper_address.HAS_SEED`, `helper_address.HAS_TERMINAL`, or none.
    """
    # A package that it imports may jit functions, and a report is that of a run.
    first_use.forget()
    run = Helper(helper_address.address_of(path), options).serve()
    if run is None:
        os._exit(0)
    run()


class Helper:
    """Single helper, with its socket, its lock and its preloaded modules."""

    def __init__(self, address: Address, options: Collection[str]) -> None:
        self._address = address
        self._key = helper_address.key_of(os.fspath(address.path))
        self._cwd = os.getcwd()
        self._environment = process_facts.variables()
        if helper_address.HAS_SEED in options:
            # The user has not set this variable, so runs and their child processes must not see it. Only the order of
            # sets in the runs follows from it.
            os.environ.pop("PYTHONHASHSEED", None)
            set_order.share_seed()
        self._lock = open_lock(address.lock_path)
        self._terminal = helper_address.HAS_TERMINAL in options
        self._imports = Imports(self._key, self._terminal)
        self._wake_read, self._wake_write = os.pipe()
        self._listener: socket.socket
        self._daemon: int | None = None
        self._audit: RunningAudit | None = None
        self._audited: object = ()  # version of the history for which the last audit was started
        self._is_daemon_remote = remote(settings().address) is not None

    def serve(self) -> Callable[[], None] | None:
        """Serve until it is time to exit. In the process of a run, return the function that runs the program."""
        if not try_lock(self._lock):
            # Another helper serves at this address.
            return None
        if process_facts.key(process_facts.facts(directories=sys.path, terminal=self._terminal)) != self._key:
            # For instance, the program that started this helper has changed a resource limit.
            return None
        helpers.note(self._lock.fileno())
        helpers.make_room()
        set_title(f"jitserver.run.helper {self._address.path}")
        own = {0, 1, 2, self._lock.fileno(), self._wake_read, self._wake_write}
        for fd in child.open_fds() - own:
            os.close(fd)
        self._watch_signals()
        # Found before the imports, and so noticed if it exits during them.
        self._watch_daemon()
        # Not "/", where an import that goes there would show no change.
        os.chdir(self._address.path.parent)
        fast_exit.register()
        self._update()
        # Before it knows what to import, a run is as fast in a fresh process.
        while self._audit is not None:
            self._wait(None)
        self._listener = self._address.listen()
        self._listener.setblocking(False)
        try:
            return self._serve()
        finally:
            if self._listener.fileno() >= 0:
                self._remove_files()

    def _wait(self, listener: socket.socket | None) -> bool:
        """Wait for what concerns this process, and take care of it, except for commands; return whether one is there.

        Waits for nothing while there are operations to prepare.
        """
        self._watch_daemon()
        poller = select.poll()
        audit = None if self._audit is None else self._audit.ended
        for each in (self._wake_read, self._daemon, listener, audit):
            if each is not None:
                poller.register(each, select.POLLIN)
        ready = dict(poller.poll(0 if listener and self._imports.operations else _TICK_SECONDS * 1000))
        if self._daemon in ready:
            self._exit()
        if self._wake_read in ready:
            self._empty_wake_pipe()
            self._reap()
        if audit is not None and audit.fileno() in ready:
            audit.close()
            self._audit = None
            self._update()
        elif self._wake_read in ready and history.version() != self._imports.version:
            self._update()
        if not ready and listener and self._imports.operations and not self._imports.prepare_next():
            self._restart()
        return listener is not None and listener.fileno() in ready

    def _update(self) -> None:
        """Import all that is known to be fit, and have an audit look at what is new, once."""
        if not self._imports.update():
            self._restart()
        if self._imports.need_audit and self._audit is None and self._audited != self._imports.version:
            self._audited = self._imports.version
            with contextlib.suppress(OSError):
                self._audit = RunningAudit(self._environment, self._cwd)

    def _serve(self) -> Callable[[], None] | None:
        used = time.monotonic()
        while True:
            has_command = self._wait(self._listener)
            if not self._is_needed(time.monotonic() - used):
                return None
            if has_command:
                used = time.monotonic()
                helpers.note_use(self._lock.fileno())
                with contextlib.suppress(BlockingIOError):
                    sock = self._listener.accept()[0]
                    # Check before the fork: a forked process would copy the memory that the check touches.
                    changed = self._imports.preloaded.verdict.changed()
                    self._imports.preloaded.hide()
                    # Read before the fork, for all runs.
                    history.fresh_programs()
                    run = self._fork(sock, changed)
                    if run is not None:
                        return run
                    if changed:
                        self._restart()

    # ---- a run

    def _fork(self, sock: socket.socket, changed: str) -> Callable[[], None] | None:
        """Fork a process for the run of a connection. Only in the process of the run, return the function to run."""
        if peer(sock).uid != os.getuid() or os.fork():
            sock.close()
            return None
        try:
            return self._begin(sock, changed)
        except (EOFError, OSError):  # the command has died
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(_FAILED)

    def _begin(self, sock: socket.socket, changed: str) -> Callable[[], None]:
        signal.set_wakeup_fd(-1)
        for fd in (self._wake_read, self._wake_write, self._daemon):
            if fd is not None:
                os.close(fd)
        if self._audit is not None:
            self._audit.ended.close()
        self._listener.close()
        self._lock.close()
        child.clear_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        sock.settimeout(_REQUEST_SECONDS)
        values, received = fd_passing.receive(sock)
        request = Request.of_plain(values)
        refusal = changed or self._refusal(request)
        if refusal:
            fd_passing.send(sock, (refusal,))
            os._exit(0)
        terminal = received[0] if request.terminal else None

        def prepare() -> None:
            # `become` closes its file descriptor with all others.
            sock.detach()
            with self._imports.preloaded.visible():
                child.become(request, received)
                internals.find_plugins_in(scan.directory_of(request.command, request.cwd))
                random_state.reseed(self._imports.generators)
            settings.cache_clear()
            importlib.invalidate_caches()
            self._imports.preloaded.serve(FreshStart(request))

        def run() -> None:
            set_title(f"{request.started[0]} {request.command}")
            signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)
            user_program.run(request.command, request.started[0], self._imports.total)

        try:
            supervisor.supervise(sock, terminal, received, prepare)
        except OSError as error:
            fd_passing.send(sock, (str(error),))
            os._exit(0)
        return run

    def _refusal(self, request: Request) -> str:
        """Return why a run needs a fresh process; empty if it does not."""
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in request.environment}
        return self._imports.differ(environment, request.cwd) or scan.refusal(
            request.command, request.cwd, self._imports.preloaded
        )

    # ---- life of the helper

    def _watch_signals(self) -> None:
        child.clear_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _EXIT_SIGNALS:
            signal.signal(number, lambda *_: self._exit())

    def _watch_daemon(self) -> None:
        """Find the daemon, unless it is known, so that the helper exits with it."""
        if self._daemon is not None or self._is_daemon_remote:
            return
        for address in default_addresses(settings().address):
            with contextlib.suppress(OSError, ValueError):
                if address.is_held():
                    pid = int(address.lock_path.read_text())
                    self._daemon = os.pidfd_open(pid)
                    helpers.note(self._lock.fileno(), pid)
                    return

    def _is_needed(self, idle_seconds: float) -> bool:
        has_daemon = self._daemon is not None or self._is_daemon_remote
        return self._is_reachable() and helpers.is_worth_its_memory(idle_seconds, has_daemon)

    def _is_reachable(self) -> bool:
        """Return whether commands can find this helper: at the end of a login, its directory may be removed."""
        return self._address.path.exists() and os.fstat(self._lock.fileno()).st_nlink > 0

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _restart(self) -> None:
        """Restart this helper."""
        # A signal that arrives from now on stays pending for the restarted helper.
        signal.pthread_sigmask(signal.SIG_BLOCK, _EXIT_SIGNALS)
        self._end_audit()
        os.chdir(self._cwd)
        os.execve(sys.executable, sys.orig_argv, self._environment)

    def _exit(self) -> NoReturn:
        """Exit now, whatever this process is doing, as a signal handler as well."""
        self._remove_files()
        os._exit(0)

    def _end_audit(self) -> None:
        if self._audit is not None:
            self._audit.end()

    def _remove_files(self) -> None:
        """Remove the files of this helper, except for a log that is not empty, and end its audit."""
        self._end_audit()
        with contextlib.suppress(OSError):
            # Another helper may have replaced the lock file.
            if os.path.samestat(os.fstat(self._lock.fileno()), os.lstat(self._address.lock_path)):
                self._address.path.unlink(missing_ok=True)
                if not os.fstat(2).st_size:
                    helper_address.log_of(self._address).unlink(missing_ok=True)
                self._address.lock_path.unlink()

    def _empty_wake_pipe(self) -> None:
        """Empty the pipe into which Python writes the numbers of signals that arrive."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
