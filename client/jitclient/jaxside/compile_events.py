"""Compilations of this process's own jax, added to the event log as jax itself reports them."""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from jitclient.capture.user_code.installed import package_of
from jitclient.core import events
from jitclient.jaxside import internals, interop

FIND, COMPILE = "find", "compile"
"""Kinds of the events of compilations that jax found and made in this process."""

_COMPILED = "/jax/core/compile/backend_compile_duration"
_FOUND = "/jax/compilation_cache/compile_time_saved_sec"
_STEPS = {"/jax/core/compile/jaxpr_trace_duration": "trace", "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower"}
_MIN_SECONDS = 0.001
"""Minimum duration of a trace or a lowering that is added."""

_waiting: list[Callable[[], None]] = []
"""Functions that are called once, at the next compilation."""

_thread = threading.local()


def _take_saved() -> float | None:
    """Return what the compilation that our own cache has just found saved; jax has no event for it."""
    cache = sys.modules.get("jitclient.jaxside.compilation_cache")
    return None if cache is None else cache.take_saved()


def note(event: str, duration_secs: float, **about: str | int) -> None:
    """Add an event of `jax.monitoring` with a duration."""
    log, name = events.log, str(about.get("fun_name", ""))
    if event in _STEPS and duration_secs >= _MIN_SECONDS:
        log.add_measured(_STEPS[event], duration_secs, name)
    elif event == _FOUND:
        _thread.has_found = True
        log.count("found by jax", seconds=duration_secs)
    elif event == _COMPILED:
        while _waiting:
            _waiting.pop()()
        # The event also follows a compilation that was found.
        is_found, _thread.has_found = getattr(_thread, "has_found", False), False
        if not is_found and (saved := _take_saved()) is not None:
            is_found = True
            log.count("found by jax", seconds=saved - duration_secs)
        log.add_measured(FIND if is_found else COMPILE, duration_secs, name)
        # jax must not fail because a function has odd attributes.
        with contextlib.suppress(Exception):
            if not is_found:
                _count(_called_function(sys._getframe(1)), duration_secs)


def _count(fun: Any, seconds: float) -> None:
    module, name = getattr(fun, "__module__", None), getattr(fun, "__qualname__", None)
    package = package_of(module) if isinstance(module, str) else None
    events.log.count("compiled by jax", seconds=seconds)
    if package not in (None, "jax", "jaxlib"):
        events.log.count("package", package, f"{module}.{name}", seconds=seconds)


def when_started(action: Callable[[], None]) -> None:
    """Call a function once jax has compiled something in this process, or immediately if jax has a backend.

    From then on, the settings of the whole process are fixed, such as XLA_FLAGS and the number of devices.
    """
    if internals.has_backend():
        action()
    else:
        _waiting.append(action)
        listen()


def listen() -> None:
    """Add what jax compiles from now on, or from its import on."""
    interop.when_loaded(_listen)


@functools.cache
def _listen() -> None:
    # Another version of jax may report nothing.
    with contextlib.suppress(ImportError, AttributeError):
        from jax import monitoring

        _take_saved()
        monitoring.register_event_duration_secs_listener(note)


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
