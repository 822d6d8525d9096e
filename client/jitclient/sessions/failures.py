"""Exceptions that happened on the daemon, raised here as what they were there."""

from types import TracebackType
from typing import Any

import msgspec

from jitclient.errors import ProtocolError, RemoteError
from jitclient.wire import values
from jitclient.wire.messages import OK, Failure, Frame


def to_exception(failure: Failure, deref: values.Deref = values.nothing) -> BaseException:
    """The exception, with the frames of the user's code as its traceback.

    Its type is the nearest of its classes that this process has loaded. Where that is not the exact one, the exception
    is a `RemoteError` as well and names the exact one.
    """
    classes = [_class_of(named, deref) for named in failure.types]
    nearest = next((cls for cls in classes if cls is not None), Exception)
    exact = bool(classes) and classes[0] is not None
    error = _rebuild(nearest, failure, deref) if exact else _stand_in(nearest, failure)
    for note in failure.notes:
        error.add_note(note)
    if failure.cause is not None:
        error.__cause__ = to_exception(failure.cause, deref)
    return error.with_traceback(_traceback(failure.frames))


def without_machinery(tb: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of ours that it begins with, if there is something behind them."""
    rest = tb
    while rest is not None and rest.tb_frame.f_globals.get("__name__", "").startswith("jitclient."):
        rest = rest.tb_next
    return rest or tb


def _class_of(named: values.Value, deref: values.Deref) -> type[BaseException] | None:
    try:
        found = values.decode(named, deref)
    except (ProtocolError, LookupError):
        return None
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _rebuild(cls: type[BaseException], failure: Failure, deref: values.Deref) -> BaseException:
    arguments = values.decode(failure.arguments, deref)
    arguments = arguments if isinstance(arguments, tuple) else (failure.text,)
    for make in (_by_call, _without_init, _as_text):
        error = make(cls, arguments, failure.text)
        if error is not None and _text_of(error) == failure.text:
            return error
    return _stand_in(cls, failure)


def _by_call(cls: type[BaseException], arguments: tuple[Any, ...], text: str) -> BaseException | None:
    try:
        return cls(*arguments)
    except Exception:  # its __init__ is its author's: what it may raise is anything
        return None


def _without_init(cls: type[BaseException], arguments: tuple[Any, ...], text: str) -> BaseException | None:
    # An __init__ may want what cannot travel: JAX's want tracers.
    error = cls.__new__(cls, *arguments)
    error.args = arguments
    return error


def _as_text(cls: type[BaseException], arguments: tuple[Any, ...], text: str) -> BaseException | None:
    return _without_init(cls, (text,), text)


def _text_of(error: BaseException) -> str | None:
    try:
        return str(error)
    except Exception:  # a __str__ that needs what __init__ did not set
        return None


def _stand_in(nearest: type[BaseException], failure: Failure) -> BaseException:
    exact = failure.types[0]
    name = exact.name if isinstance(exact, values.Named) else "an exception"
    bases = (RemoteError,) if nearest in (Exception, BaseException, RuntimeError) else (RemoteError, nearest)
    made: type[BaseException] = type(name.rpartition(".")[2], bases, {"__module__": "jitclient.remote"})
    error = made.__new__(made, failure.text)
    error.args = (failure.text,)
    return error


def _traceback(frames: tuple[Frame, ...]) -> Any:
    if not frames:
        return None
    from tblib import Traceback  # only where something failed

    chain: dict[str, Any] | None = None
    for frame in reversed(frames):
        code = {"co_filename": frame.file, "co_name": frame.name}
        chain = {
            "tb_frame": {"f_globals": {"__name__": frame.name}, "f_code": code, "f_lineno": frame.line},
            "tb_lineno": frame.line,
            "tb_next": chain,
        }
    return Traceback.from_dict(chain).as_traceback()


def answered(reply: bytes, answer: Any, deref: values.Deref = values.nothing) -> Any:
    """What a verb's reply holds: a message of type `answer`, or an exception, which is raised."""
    if reply[:1] == OK:
        return msgspec.msgpack.decode(reply[1:], type=answer)
    raise to_exception(msgspec.msgpack.decode(reply[1:], type=Failure), deref)
