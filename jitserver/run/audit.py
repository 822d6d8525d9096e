"""Audit of imports: what each of the modules that runs have imported does to the process that imports it.

A process of its own, at low priority, imports one package after the other, each in a fork, and compares the state of
the process. What changes state that other code finds is left to each run. The helper reads the verdict and imports the
rest.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence

import msgspec

from jitclient.capture.graph import set_order
from jitclient.capture.user_code.installed import OWN_PACKAGES
from jitclient.core.file_stamp import FileStamp
from jitclient.errors import SettingsError
from jitclient.jaxside import internals
from jitserver.run import child, helper_address, history, random_state, verdict
from jitserver.run.fresh_start import has_had_children
from jitserver.run.import_watch import ImportWatch
from jitserver.run.process_state import ProcessState
from jitserver.run.verdict import Verdict

ALWAYS = (
    "numpy",
    "jitclient.calls.decorator",
    "jitclient.api.switch",
    "jitclient.session.session",
    "jitclient.calls.general_path",
)
"""Modules that each helper imports first."""
_THREADS_THAT_FORK = ("numpy", "scipy")
"""Packages whose native threads, those of OpenBLAS, stop before a fork and restart when they are needed."""
_MAX_UNFIT_IN_PACKAGE = 10
_UNITS_OF_FORK = 16  # a fork copies the memory that it touches; after an effect, its imports are repeated
_FORK_SECONDS = 600.0
_FIT = b"\0"
_Inputs = tuple[dict[str, str | None], dict[str, FileStamp], dict[str, int]]
_PROGRAM = (
    "import sys; sys.flags.safe_path or sys.path.pop(0); from jitserver.run.audit import main; main(*sys.argv[1:])"
)


def wanted() -> list[str]:
    """Return the modules that a helper is to import, if they are fit, in their order."""
    return list(dict.fromkeys([*ALWAYS, *history.modules()]))


class RunningAudit:
    """Audit that was started by this process.

    Attributes:
        ended: file that can be read, and is at its end, when the audit has ended.
    """

    def __init__(self, environment: dict[bytes, bytes], cwd: str) -> None:
        """Start an audit for this process, a helper, with the variables and the directory in which it was started.

        Raises:
            OSError: there is no memory for another process, say.
        """
        reads, running = os.pipe()
        self.ended = os.fdopen(reads, "rb", buffering=0)
        at = sys.orig_argv.index("-c") + 1
        before = os.getcwd()
        os.set_inheritable(running, True)
        try:
            os.chdir(cwd)
            self._pid = os.posix_spawn(
                sys.executable,
                [*sys.orig_argv[:at], _PROGRAM, *sys.orig_argv[at + 1 :]],
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, running, 3)] if running != 3 else [],
                setsid=True,
                setsigmask=(),
            )
        finally:
            os.chdir(before)
            os.close(running)

    def end(self) -> None:
        """End the audit, with all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)


def main(path: str, *options: str) -> None:
    """Audit what the helper at a path is to import, and write the verdict.

    Args:
        path: path of the helper's socket.
        options: those of the helper (`helper.main`).
    """
    if helper_address.HAS_SEED in options:
        os.environ.pop("PYTHONHASHSEED", None)
        set_order.share_seed()
    os.set_inheritable(3, False)
    for fd in child.open_fds() - {0, 1, 2, 3}:
        os.close(fd)
    os.nice(19)
    child.clear_signals()
    # Not "/", where an import that goes there would show no change.
    os.chdir(helper_address.address_of(path).path.parent)
    helper, names = helper_address.key_of(path), wanted()
    earlier = verdict.read(helper) or Verdict()
    log = os.dup(2)
    _redirect_output()
    try:
        audit = _Audit(helper_address.HAS_TERMINAL in options, earlier)
        audit.run(names)
        found = audit.watch.verdict
        # A file that has changed meanwhile may have been imported before it changed.
        if not found.changed():
            verdict.write(helper, found)
    except (OSError, SettingsError):  # the folder was removed, or the disk is full
        pass
    except BaseException:
        os.dup2(log, 2)
        traceback.print_exc()
    os._exit(0)


class _Audit:
    """Audit in this process, and in those that it forks."""

    def __init__(self, terminal: bool, earlier: Verdict) -> None:
        self._earlier = earlier
        self._state: ProcessState | None = None
        self.watch = ImportWatch(terminal)
        self._fit, self._unfit = self.watch.verdict.fit, self.watch.verdict.unfit
        self._unfit |= earlier.unfit
        self._add_inputs(earlier.variables, earlier.files, earlier.kinds)

    def run(self, names: Sequence[str]) -> None:
        """Import modules in forks, one package after the other. Returns in the last of the forked processes."""
        # An earlier audit has imported these in this order, of the same files, and found them fit.
        for name in self._earlier.fit:
            self.watch.observe(name)
            self._fit.append(name)
        new = [name for name in names if name not in self._fit and name not in self._unfit]
        units = [list(unit) for _, unit in itertools.groupby(new, _package)]
        while units:
            _end_without_helper()
            at, reason = self._import_in_fork(units[:_UNITS_OF_FORK])
            if not reason:
                del units[:_UNITS_OF_FORK]
            elif len(units[at]) == 1:
                self._note_unfit(units.pop(at)[0], reason, units[at:])
            else:
                unit = units[at]
                # All else in a package is unfit if its own module is.
                middle = 1 if unit[1].startswith(f"{unit[0]}.") else len(unit) // 2
                units[at : at + 1] = unit[:middle], unit[middle:]

    def _import_in_fork(self, units: Sequence[Sequence[str]]) -> tuple[int, str]:
        """Import units of modules in a forked process, which takes the place of this one if they are fit.

        Returns:
            Which is unfit, and why, in this process; an empty reason in the forked one.
        """
        answer, own = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(answer)
            self._state = None
            for at, unit in enumerate(units):
                os.write(own, b"%d\n" % at)
                reason = self._import(unit)
                if reason:
                    found = self.watch.verdict
                    os.write(own, json.dumps([reason, found.variables, found.files, found.kinds]).encode())
                    os._exit(0)
            os.write(own, _FIT)
            os.close(own)
            return 0, ""
        os.close(own)
        lines = _read_within(answer, _FORK_SECONDS).split(b"\n")
        os.close(answer)
        if lines[-1] == _FIT:
            os._exit(0)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        at = max(len(lines) - 2, 0)
        if not lines[-1]:
            return at, f"{units[at][0]} ends the process, or does not end"
        reason, *inputs = json.loads(lines[-1])
        self._add_inputs(*msgspec.convert(inputs, _Inputs))
        return at, reason

    def _add_inputs(self, variables: dict[str, str | None], files: dict[str, FileStamp], kinds: dict[str, int]) -> None:
        """Add inputs of imports that this process does not do: another audit looks again when they have changed."""
        self.watch.verdict.variables |= variables
        self.watch.verdict.files |= files
        self.watch.verdict.kinds |= kinds

    def _import(self, unit: Sequence[str]) -> str:
        """Import modules of one package; return the first effect that must not happen before a run, or nothing."""
        package, before = _package(unit[0]), self._state or ProcessState()
        for name in unit:
            if not self._may_be_fit(name):
                continue
            if name not in sys.modules:
                try:
                    self.watch.observe(name)
                except BaseException as error:
                    return f"{name} raises {type(error).__name__}"
                child.forget_temporary_directory()
                problem = self.watch.problem or _problem()
                if problem:
                    return f"{name} {problem}"
            self._fit.append(name)
        self._state = now = ProcessState()
        if now.printed_bytes != before.printed_bytes:
            return f"{unit[0]} changes the printed output"
        if now.native_threads > before.native_threads and package not in _THREADS_THAT_FORK:
            return f"{unit[0]} starts native threads"
        changed = before.changes(now, package)
        return f"{unit[0]} changes {changed[0]}" if changed and package not in OWN_PACKAGES else ""

    def _may_be_fit(self, name: str) -> bool:
        """Return whether a module is to be imported: neither is it known to be unfit, nor a package above it."""
        if name in self._unfit:
            return False
        left = next((above for above in verdict.with_packages(name) if above in self._unfit), "")
        if left:
            self._unfit[name] = f"{left} {verdict.LEFT}"
        return not left

    def _note_unfit(self, name: str, reason: str, later: Sequence[Sequence[str]]) -> None:
        """Note a module that is unfit; after many in one package, all that come later in it are unfit."""
        package = _package(name)
        self._unfit[name] = reason
        if sum(_package(each) == package for each in self._unfit) >= _MAX_UNFIT_IN_PACKAGE:
            names = [each for unit in later for each in unit if _package(each) == package]
            self._unfit |= {each: f"{package} {verdict.LEFT}" for each in names if each not in self._unfit}


def _package(name: str) -> str:
    return name.partition(".")[0]


def _problem() -> str:
    """Return an effect of an import of which the state of the process has no trace; empty if there is none."""
    if "jax" in sys.modules and internals.has_backend():
        return "starts a backend of JAX"
    if threading.active_count() > 1:
        return "starts a thread"
    if has_had_children():
        return "starts a process"
    if random_state.numpy_is_seeded():
        return "seeds random numbers"
    return ""


def _redirect_output() -> None:
    """Redirect printed output to a file whose size shows whether an import printed anything."""
    own = os.memfd_create("printed")
    for number in (1, 2):
        os.dup2(own, number)
    os.close(own)


def _end_without_helper() -> None:
    """End this process if the helper that has started it has ended."""
    poller = select.poll()
    poller.register(3, 0)
    if poller.poll(0):
        os._exit(0)


def _read_within(fd: int, seconds: float) -> bytes:
    """Read to the end of a pipe, or until some seconds have passed."""
    found, deadline = b"", time.monotonic() + seconds
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0] and (part := os.read(fd, 65536)):
        found += part
    return found
