"""Side effects of an import that a helper must not have: a module with such effects is left to the runs."""

import contextlib
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from jitclient.jaxside import internals
from jitserver.run import process_facts
from jitserver.run.import_audit import ImportAudit

THREADS_THAT_FORK = ("numpy", "scipy")
"""Packages whose native threads, those of OpenBLAS, stop before a fork and restart when they are needed."""


class Effects:
    """State of the process before a module is imported."""

    _max_threads = 1

    def __init__(self, module: str, audit: ImportAudit) -> None:
        self._module = module
        self._audit = audit
        self._before = _state()

    def found(self) -> str:
        """Return the side effect of the import that must not happen before the run; empty if there is none."""
        if self._audit.varying_input:
            return f"{self._module} reads {self._audit.varying_input}"
        if internals.has_backend():
            return f"{self._module} starts a backend of JAX"
        if threading.active_count() > 1:
            return f"{self._module} starts a thread"
        now = _state()
        for what, value in self._before.items():
            if now[what] != value and not self._is_allowed(what, now[what]):
                return f"{self._module} changes {what}"
        return ""

    def _is_allowed(self, what: str, count: Any) -> bool:
        if what != "native threads":
            return False
        if self._module.partition(".")[0] in THREADS_THAT_FORK:
            Effects._max_threads = max(Effects._max_threads, count)
        # Threads that restart after a fork are allowed.
        return bool(count <= Effects._max_threads)


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


def _state() -> dict[str, Any]:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    config = getattr(sys.modules.get("jax"), "config", None)
    return {
        "native threads": len(os.listdir("/proc/self/task")),
        "the printed output": os.fstat(1).st_size,
        "the standard streams": [
            (stream, stream.line_buffering, process_facts.stream_settings(stream))
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "signal handlers": [signal.getsignal(number) for number in signal.valid_signals()],
        "sys.excepthook": sys.excepthook,
        "sys.displayhook": sys.displayhook,
        "sys.path": list(sys.path),
        "limits": (sys.getrecursionlimit(), sys.getswitchinterval()),
        **{f"JAX's setting {name}": value for name, value in getattr(config, "values", {}).items()},
    }
