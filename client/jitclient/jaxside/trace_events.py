"""Traces that JAX makes, as its monitoring reports them: for which functions, and which code they run."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from jitclient.capture.manifest.places import is_foundation

_TRACE_EVENT = "/jax/core/compile/jaxpr_trace_duration"


class _Counting(threading.local):
    traces: list[str] | None = None


_counting = _Counting()


@contextlib.contextmanager
def counted() -> Iterator[list[str]]:
    """Yield a list of the functions that JAX traces in this thread; empty if JAX has the trace already."""
    _listen()
    before, _counting.traces = _counting.traces, []
    try:
        yield _counting.traces
    finally:
        _counting.traces = before


def code_of(fun: Any) -> CodeType | None:
    """Return the code that runs when a jitted function is traced; None if it is neither the user's nor a package's."""
    while fun is not None and not isinstance(fun, FunctionType):
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif isinstance(fun, MethodType):
            fun = fun.__func__
        elif is_foundation(type(fun).__module__) or type(fun).__module__.startswith("jitclient."):
            fun = getattr(fun, "__wrapped__", None)
        else:
            fun = type(fun).__call__ if callable(fun) else None
    return None if fun is None or is_foundation(fun.__module__) else fun.__code__


@functools.cache
def _listen() -> None:
    from jax import monitoring

    monitoring.register_event_duration_secs_listener(_note_event)


def _note_event(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event == _TRACE_EVENT and _counting.traces is not None:
        _counting.traces.append(str(kwargs.get("fun_name")))
