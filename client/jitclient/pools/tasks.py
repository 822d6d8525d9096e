"""Calls and their outcomes as they travel between the program and a worker, whichever engine carries them.

Functions and classes of modules are pickled by name, those of `__main__` and those made by functions by value, with
cloudpickle. A class that a worker has from the program goes back by its number, and is the same class again.
"""

import functools
import io
import os
import pickle
import socket
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

import cloudpickle

from jitclient.core.tracebacks import hide_machinery
from jitclient.errors import ArrayLost, RemoteError

_internals = cloudpickle.cloudpickle
_NO_FILE = "<dynamic-code>"
_MAX_FUNCTIONS = 64
_classes_of_worker: "weakref.WeakSet[type]" = weakref.WeakSet()

Outcome = tuple[bool, bytes]
"""Whether a call returned; and the pickle of its value, or of (its exception's pickle, its summary, its traceback)."""


class RemoteTraceback(Exception):  # noqa: N818
    """Traceback of an exception in the worker that raised it: the cause of that exception in the program."""

    def __str__(self) -> str:
        return str(self.args[0])


# ---- in the program


def dumps(value: Any) -> bytes:
    """Pickle a value of the program; arrays of a daemon by value."""
    return _dumped(value, names_classes=False)


loads = pickle.loads


def result_of(outcome: Outcome) -> Any:
    """Return the value of a call, or raise its exception, whose cause has the worker's traceback.

    Raises:
        Exception: the call raised it, or its result cannot be unpickled. One that cannot be is a `RemoteError`.
    """
    has_returned, data = outcome
    try:
        value = loads(data)
    except Exception as error:
        error.add_note("the result of this call cannot be unpickled in this program")
        raise
    if has_returned:
        return value
    pickled, summary, text = value
    try:
        raised: BaseException = loads(pickled)
    except Exception:
        raised = RemoteError(summary)
    raise raised from RemoteTraceback(text)


# ---- in a worker


def run(calls: Sequence[bytes], function: bytes) -> list[Outcome]:
    """Call a pickled function with each of some pickled arguments `(args, kwargs)`; return the outcomes."""
    outcomes = [_outcome(function, call) for call in calls]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    return outcomes


def _outcome(function: bytes, call: bytes) -> Outcome:
    try:
        try:
            value = _value(function, call)
        except ArrayLost:  # its daemon died. The next one has what the pool keeps, once function and call ask for it
            _function.cache_clear()
            value = _value(function, call)
        try:
            return True, _dumped(value, names_classes=True)
        except Exception as error:
            found = _function(function)
            name = getattr(found, "__qualname__", type(found).__qualname__)
            error.add_note(f"{name} returned this value, which cannot be sent to the program: {type(value).__name__}")
            raise
    except BaseException as error:
        hide_machinery(error)
        text = "".join(traceback.format_exception(error))
        summary = "".join(traceback.format_exception_only(error)).strip()
        try:
            data = _dumped(error.with_traceback(None), names_classes=True)
            loads(data)
        except Exception:
            data = b""
        where = f"{socket.gethostname()} (pid {os.getpid()})"
        return False, pickle.dumps((data, summary, f'\n"""on {where}:\n{text}"""'))


def _value(function: bytes, call: bytes) -> Any:
    found, (args, kwargs) = _function(function), loads(call)
    return found(*args, **kwargs)


@functools.lru_cache(_MAX_FUNCTIONS)
def _function(data: bytes) -> Callable[..., Any]:
    """Return a function, the same object for all of its calls: a jitted one keeps what it has learned."""
    found: Callable[..., Any] = loads(data)
    return found


# ---- both


def _dumped(value: Any, names_classes: bool) -> bytes:
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.names_classes = names_classes
    pickler.dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    names_classes = False

    def reducer_override(self, obj: Any) -> Any:
        if self.names_classes and isinstance(obj, type):
            number = _internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
            if number is None:
                _classes_of_worker.add(obj)
            elif obj not in _classes_of_worker:
                # By value, cloudpickle would set the attributes of the program's own class to the worker's.
                return _class_of_program, (number,)
        if isinstance(obj, CodeType):
            # With the name of the file, which tracebacks of the worker show.
            kind, fields = _internals._code_reduce(obj)
            return kind, tuple(obj.co_filename if field == _NO_FILE else field for field in fields)
        return super().reducer_override(obj)


def _class_of_program(number: str) -> type:
    found: type | None = _internals._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    if found is None:
        raise pickle.UnpicklingError("a result has a class that this program no longer has")
    return found
