"""Compilations of this process's own jax, counted from the events that jax itself reports."""

import contextlib
import functools
import sys
import threading
from typing import Any

from jitclient.capture.user_code.installed import package_of
from jitclient.jaxside import interop

_COMPILED = "/jax/core/compile/backend_compile_duration"
_FOUND = "/jax/compilation_cache/compile_time_saved_sec"
_RETRIEVED = "/jax/compilation_cache/cache_retrieval_time_sec"


class CompileEvents:
    """Counts of compilations since the start of the process, or since `clear`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = threading.local()
        self.clear()

    def clear(self) -> None:
        """Forget all counts. The only thread of a forked process calls this."""
        self._lock = threading.Lock()
        self.found = 0
        """Number of compilations that jax, or our own cache, has found."""
        self.compiled = 0
        """Number of compilations that jax has made."""
        self.compiled_seconds = 0.0
        self.packages: dict[str, dict[str, float]] = {}
        """Functions of installed packages that were compiled, with the seconds that this took."""
        self._saved_by_jax = 0.0
        self._retrieval_seconds = 0.0

    @property
    def saved_seconds(self) -> float:
        """Seconds that the found compilations took when they were made, without those of finding them."""
        if not self.found:
            return 0.0
        from jitclient.jaxside import compilation_cache  # slow to import, rarely needed

        own = compilation_cache.own()
        # jax's own event has whole seconds only.
        return own.saved_seconds - self._retrieval_seconds if own is not None and own.found else self._saved_by_jax

    def note(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Count an event of `jax.monitoring` with a duration."""
        if event == _FOUND:
            self._thread.has_found = True
            with self._lock:
                self.found += 1
                self._saved_by_jax += duration_secs
        elif event == _RETRIEVED:
            with self._lock:
                self._retrieval_seconds += duration_secs
        elif event == _COMPILED:
            # The event also follows a compilation that was found.
            if getattr(self._thread, "has_found", False):
                self._thread.has_found = False
                return
            before, self._thread.own_found = getattr(self._thread, "own_found", 0), _found_by_thread()
            if self._thread.own_found > before:
                with self._lock:
                    self.found += 1
                return
            # jax must not fail because a function has odd attributes.
            with contextlib.suppress(Exception):
                self._count(_called_function(sys._getframe(1)), duration_secs)

    def _count(self, fun: Any, seconds: float) -> None:
        module, name = getattr(fun, "__module__", None), getattr(fun, "__qualname__", None)
        package = package_of(module) if isinstance(module, str) else None
        with self._lock:
            self.compiled += 1
            self.compiled_seconds += seconds
            if package not in (None, "jax", "jaxlib"):
                functions = self.packages.setdefault(package, {})
                key = f"{module}.{name}"
                functions[key] = functions.get(key, 0.0) + seconds


compile_events = CompileEvents()
"""Compilations of this process's own jax."""


def listen() -> None:
    """Make `compile_events` count what jax compiles from now on, or from its import on."""
    interop.when_loaded(_listen)


@functools.cache
def _listen() -> None:
    # Another version of jax may report nothing.
    with contextlib.suppress(ImportError, AttributeError):
        from jax import monitoring

        monitoring.register_event_duration_secs_listener(compile_events.note)


def _found_by_thread() -> int:
    """Return how many compilations of our own cache the current thread has found; jax has no event for them."""
    cache = sys.modules.get("jitclient.jaxside.compilation_cache")
    return 0 if cache is None else cache.found_by_thread()


def _called_function(frame: Any) -> Any:
    """Return the function under the jit whose call compiles; None if jax compiles for another reason.

    jax says only the name of a function, and not its module. In another version of jax, the frame may have another
    name: functions of packages are then not counted by package.
    """
    while frame is not None:
        if frame.f_code.co_name == "cache_miss" and frame.f_globals.get("__name__", "").startswith("jax."):
            fun = frame.f_locals.get("fun")
            while isinstance(fun, functools.partial):
                fun = fun.func
            return fun
        frame = frame.f_back
    return None
