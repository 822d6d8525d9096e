"""Exceptions as users see them: without jitclient's frames, and with a line of advice."""

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType, FunctionType, TracebackType
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type)

_CALLED_BY_US = sys.stdlib_module_names | {"rpyc"}
"""Packages whose frames are jitclient's own where jitclient called them."""


def api_boundary(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function that users call: no exception that leaves the function has frames of jitclient."""

    @functools.wraps(function)
    def entered(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            hide_machinery(error)
            raise

    return entered


def api_boundaries(*others: str) -> Callable[[_C], _C]:
    """Decorate a class that users use: its special and public methods and properties become API boundaries.

    Args:
        others: names of methods that call `hide_machinery` themselves, which saves the time of one more call.
    """

    def decorated(cls: _C) -> _C:
        for name, value in vars(cls).copy().items():
            if name in others or (name.startswith("_") and not name.endswith("__")):
                continue
            if isinstance(value, FunctionType):
                setattr(cls, name, api_boundary(value))
            elif isinstance(value, property) and value.fget is not None:
                setattr(cls, name, value.getter(api_boundary(value.fget)))
        return cls

    return decorated


def hide_machinery(error: BaseException) -> None:
    """Remove jitclient's frames from the tracebacks of an exception, of its cause and of its context.

    Exceptions that jitclient both raised and handled are no longer causes or contexts of others.

    Call this where the exception is handled, and raise it by `raise` alone: any other statement adds a frame. The
    variable JAX_TRACEBACK_FILTERING=off keeps all frames, as it keeps JAX's.
    """
    if os.environ.get("JAX_TRACEBACK_FILTERING") == "off":
        return
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = _without_machinery(one.__traceback__)
            _unlink_handled(one)
            todo += [one.__cause__, one.__context__]


def _unlink_handled(error: BaseException) -> None:
    cause, context = error.__cause__, error.__context__
    passed: set[int] = set()
    while context is not None and id(context) not in passed and _is_handled(context):
        passed.add(id(context))
        context = context.__context__
    if cause is not None and _is_handled(cause):
        # The assignment suppresses the context, which may be the user's.
        error.__cause__, error.__suppress_context__ = None, False
    if context is not error.__context__:
        error.__context__ = context


def _is_handled(error: BaseException) -> bool:
    """Return whether an exception never left jitclient: all its frames are jitclient's."""
    tb = error.__traceback__
    return tb is not None and _without_machinery(tb) is None


def _without_machinery(tb: TracebackType | None) -> TracebackType | None:
    entries, is_ours = [], False
    while tb is not None:
        is_ours = _is_ours(tb.tb_frame, is_ours)
        if not is_ours:
            entries.append(tb)
        tb = tb.tb_next
    rest: TracebackType | None = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def _is_ours(frame: FrameType, is_caller_ours: bool) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "jitclient" or (is_caller_ours and package in _CALLED_BY_US)


def is_of_loading(error: BaseException) -> bool:
    """Return whether jitclient failed to load its own code for lack of file descriptors or memory."""
    if isinstance(error, ModuleNotFoundError) or not isinstance(error, (OSError, ImportError, MemoryError)):
        return False
    at, is_ours = error.__traceback__, False
    while at is not None:
        if is_ours and at.tb_frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        # A module's top level is loaded on behalf of the frame before it.
        is_module = at.tb_frame.f_code.co_name == "<module>"
        is_ours = at.tb_frame.f_globals.get("__name__", "").startswith("jitclient.") or (is_ours and is_module)
        at = at.tb_next
    return False


_LOOPS = "jax.lax.fori_loop or jax.lax.scan"

_BY_CLASS = {
    "TracerBoolConversionError": (
        "Python's if, while, and, or and not need a value that is known during the trace: choose with "
        "jnp.where or jax.lax.cond, loop with jax.lax.while_loop, or make the argument static (static_argnames)"
    ),
    "TracerIntegerConversionError": (
        f"range() and indexing a list need a number that is known during the trace: loop with {_LOOPS}, "
        "or make the argument static (static_argnames)"
    ),
    "UnexpectedTracerError": (
        "traced code kept an intermediate value in a list, a global or an attribute, and it was used after the "
        "trace: return it, or carry it through the loop"
    ),
    "TraceContextError": (
        "an nnx module that was made outside a loop, branch or transformation was changed inside: make it an "
        "argument there (nnx.scan, nnx.fori_loop, nnx.cond), or carry its state: nnx.split before, nnx.merge inside"
    ),
}
"""Advice by the name of the exception class, so that no module needs to be imported."""

_BY_TEXT = {
    "Triggering __jax_array__()": (
        "a wrapper of an array, such as an nnx.Param, was passed where an array is needed: pass the array, param[...]"
    ),
}


def add_hint(error: BaseException) -> None:
    """Add a note with advice to an error that a common mistake causes."""
    hint = _hint_for(error)
    if hint is not None and hint not in getattr(error, "__notes__", ()):
        error.add_note(hint)


def _hint_for(error: BaseException) -> str | None:
    for cls in type(error).__mro__:
        if cls.__name__ in _BY_CLASS and cls.__module__.partition(".")[0] in ("jax", "flax"):
            return f"hint: {_BY_CLASS[cls.__name__]}"
    # Not str(error), because a user's `__str__` may raise any exception.
    message = error.args[0] if error.args and isinstance(error.args[0], str) else ""
    found = [hint for text, hint in _BY_TEXT.items() if text in message]
    return f"hint: {found[0]}" if found else None
