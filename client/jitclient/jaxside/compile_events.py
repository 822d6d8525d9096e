"""Compilations of this process's own jax, counted from the events that jax itself reports."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from jitclient.capture.user_code.installed import package_of
from jitclient.core import timeline
from jitclient.jaxside import internals, interop

FIND, COMPILE = "find", "compile"
"""Kinds of the spans of compilations that jax found and made in this process."""

_COMPILED = "/jax/core/compile/backend_compile_duration"
_FOUND = "/jax/compilation_cache/compile_time_saved_sec"
_STEPS = {"/jax/core/compile/jaxpr_trace_duration": "trace", "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower"}
_MIN_SECONDS = 0.001
"""Minimum duration of a trace or a lowering that the time line has."""


def _take_saved() -> float | None:
    """Return what the compilation that our own cache has just found saved; jax has no event for it."""
    cache = sys.modules.get("jitclient.jaxside.compilation_cache")
    return None if cache is None else cache.take_saved()


class CompileEvents:
    """Counts of compilations since the start of the process, or since `clear`."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may compile.
        self._lock = threading.RLock()
        self._thread = threading.local()
        self.waiting: list[Callable[[], None]] = []
        """Functions that are called once, at the next compilation."""
        self.clear()

    def clear(self) -> None:
        """Forget all counts. The only thread of a forked process calls this."""
        self._lock = threading.RLock()
        self.found = 0
        """Number of compilations that jax, or our own cache, has found."""
        self.compiled = 0
        """Number of compilations that jax has made."""
        self.compiled_seconds = 0.0
        self.packages: dict[str, dict[str, float]] = {}
        """Functions of installed packages that were compiled, with the seconds that this took."""
        self.saved_seconds = 0.0
        """Seconds that the found compilations took when they were made, without those of finding them."""
        _take_saved()

    def note(self, event: str, duration_secs: float, **about: str | int) -> None:
        """Count an event of `jax.monitoring` with a duration."""
        line, name = timeline.current, str(about.get("fun_name", ""))
        if line is not None and event in _STEPS:
            line.add_event(_STEPS[event], duration_secs, name, _MIN_SECONDS)
        if event == _FOUND:
            self._thread.has_found = True
            with self._lock:
                self.found += 1
                self.saved_seconds += duration_secs
        elif event == _COMPILED:
            while self.waiting:
                self.waiting.pop()()
            # The event also follows a compilation that was found.
            if getattr(self._thread, "has_found", False):
                self._thread.has_found = False
                if line is not None:
                    line.add_event(FIND, duration_secs, name)
                return
            saved = _take_saved()
            if saved is not None:
                with self._lock:
                    self.found += 1
                    self.saved_seconds += saved - duration_secs
                if line is not None:
                    line.add_event(FIND, duration_secs, name)
                return
            if line is not None:
                line.add_event(COMPILE, duration_secs, name)
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


def when_started(action: Callable[[], None]) -> None:
    """Call a function once jax has compiled something in this process, or immediately if jax has a backend.

    From then on, the settings of the whole process are fixed, such as XLA_FLAGS and the number of devices.
    """
    if internals.has_backend():
        action()
    else:
        compile_events.waiting.append(action)
        listen()


def listen() -> None:
    """Make `compile_events` count what jax compiles from now on, or from its import on."""
    interop.when_loaded(_listen)


@functools.cache
def _listen() -> None:
    # Another version of jax may report nothing.
    with contextlib.suppress(ImportError, AttributeError):
        from jax import monitoring

        _take_saved()
        monitoring.register_event_duration_secs_listener(compile_events.note)


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
