"""Side effects of imports that a helper must not have: a module with such effects is left to the runs."""

import codecs
import contextlib
import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.capture.user_code.installed import OWN_PACKAGES
from jitclient.jaxside import internals
from jitserver.run.environment_log import EnvironmentLog
from jitserver.run.import_audit import ImportAudit
from jitserver.run.process_state import ProcessState
from jitserver.run.random_state import Seeding
from jitserver.run.replacement import Replacement

PACKAGES_WITH_STATE = ("numpy", "scipy", "matplotlib", "pandas")
"""Packages that are imported before all others: these change their settings, or use the native threads of numpy."""
_THREADS_THAT_FORK = ("numpy", "scipy")
"""Packages whose native threads, those of OpenBLAS, stop before a fork and restart when they are needed."""


_REGISTERS = (
    (codecs, "register", "a codec"),
    (codecs, "register_error", "a handler of errors of codecs"),
)
"""Functions that register something in the interpreter, which cannot be asked for it afterwards."""


class Registrations:
    """Context that notes what imports register in the interpreter.

    Attributes:
        made: a thing that was registered; empty if there is none.
        by: the module that registered it.
    """

    def __init__(self) -> None:
        self.made = self.by = ""
        self._replacement = Replacement()

    def __enter__(self) -> "Registrations":
        for module, name, thing in _REGISTERS:
            self._replacement.put(module, name, self._noting(getattr(module, name), thing))
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()

    def _noting(self, function: Callable[..., Any], thing: str) -> Callable[..., Any]:
        def register(*arguments: Any) -> Any:
            self.made, self.by = thing, sys._getframe(1).f_globals.get("__name__", "?")
            return function(*arguments)

        return register


class Effects:
    """Effects of each import on the process.

    Attributes:
        changed_state: whether the last import changed state, which modules that it imported may have seen.
    """

    _max_threads = 1

    def __init__(
        self, audit: ImportAudit, environment: EnvironmentLog, seeding: Seeding, registrations: Registrations
    ) -> None:
        self._audit = audit
        self._registrations = registrations
        self._environment = environment
        self._seeding = seeding
        self.changed_state = False
        self._before = ProcessState()
        # An earlier helper has looked at those that were started by imports before.
        Effects._max_threads = max(Effects._max_threads, self._before.native_threads)
        self._seeded = seeding.seeded_by_code()

    def of(self, module: str) -> str:
        """Return the side effect of the import of a module that must not happen before a run; empty if there is none.

        Call it after each import: it compares with the state at the last call.
        """
        if self._audit.has_read:
            return f"{module} reads {self._audit.has_read}"
        if self._environment.has_iterated:
            return f"{module} reads all environment variables"
        if self._registrations.made:
            made, by = self._registrations.made, self._registrations.by
            return f"{module} registers {made}" + (f" (by {by})" if by != module else "")
        if internals.has_backend():
            return f"{module} starts a backend of JAX"
        if threading.active_count() > 1:
            return f"{module} starts a thread"
        if self._seeding.seeded_by_code() != self._seeded:
            return f"{module} seeds random numbers"
        package = module.partition(".")[0]
        before, self._before = self._before, ProcessState()
        if self._before.printed_bytes != before.printed_bytes:
            return f"{module} changes the printed output"
        changed = before.changes(self._before, package)
        self.changed_state = bool(changed) and package not in OWN_PACKAGES
        if self.changed_state:
            return f"{module} changes {changed[0]}"
        # Threads that restart after a fork are allowed.
        if package in _THREADS_THAT_FORK:
            Effects._max_threads = max(Effects._max_threads, self._before.native_threads)
        if self._before.native_threads > Effects._max_threads:
            return f"{module} starts native threads"
        return ""


@contextlib.contextmanager
def redirected_output() -> Iterator[None]:
    """Redirect printed output to a file of its own, whose size shows whether an import printed anything."""
    saved = [(number, fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)) for number in (1, 2)]
    own = os.memfd_create("printed")
    for number, _ in saved:
        os.dup2(own, number)
    os.close(own)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, copy in saved:
            os.dup2(copy, number)
            os.close(copy)
