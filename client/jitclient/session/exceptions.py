"""Exceptions of the daemon, rebuilt and raised here with their own types."""

from collections.abc import Iterator
from typing import Any, TypeVar

from jitclient.capture.codec import values
from jitclient.errors import ProtocolError, RemoteError
from jitclient.wire.messages import Failure
from jitclient.wire.reply import decoded_answer

_Base = TypeVar("_Base", bound=BaseException)


class TraceFailed(Exception):  # noqa: N818
    """Failed trace on the daemon, which raised `error`; this process may trace the function itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the trace on the daemon raised {type(error).__qualname__}: {_text_of(error) or '':.200}")
        self.error = error


def to_exception(failure: Failure, deref: values.Deref = values.no_deref) -> BaseException:
    """Rebuild an exception, without its traceback.

    Its type is the most derived of its classes that this process has loaded. If that is not the exact one, the
    exception is also a `RemoteError` that names the exact class.
    """
    classes = [class_of(named, deref, BaseException) for named in failure.types]
    nearest = next((cls for cls in classes if cls is not None), Exception)
    exact = bool(classes) and classes[0] is not None
    error = _rebuild(nearest, failure, deref) if exact else _stand_in(nearest, failure, deref)
    for note in failure.notes:
        error.add_note(note)
    error.__cause__ = None if failure.cause is None else to_exception(failure.cause, deref)
    return error


def _attributes(failure: Failure, deref: values.Deref) -> Iterator[tuple[str, Any]]:
    for name, value in failure.attributes:
        try:
            yield name, values.decode(value, deref)
        except (ProtocolError, LookupError):
            continue


def class_of(named: bytes, deref: values.Deref, base: type[_Base]) -> type[_Base] | None:
    """Return the class that was sent, if this process has loaded it and it is derived from `base`; else None."""
    try:
        found = values.decode(named, deref)
    except (ProtocolError, LookupError):
        return None
    return found if isinstance(found, type) and issubclass(found, base) else None


def _rebuild(cls: type[BaseException], failure: Failure, deref: values.Deref) -> BaseException:
    arguments = values.decode(failure.arguments, deref)
    arguments = arguments if isinstance(arguments, tuple) else (failure.text,)
    attributes = dict(_attributes(failure, deref))
    for make in (_by_call, _without_init, _as_text):
        error = make(cls, arguments, failure.text)
        if error is None:
            continue
        error.__dict__.update(attributes)
        if _text_of(error) == failure.text:
            return error
    return _stand_in(cls, failure, deref)


def _by_call(cls: type[BaseException], arguments: tuple[Any, ...], text: str) -> BaseException | None:
    try:
        return cls(*arguments)
    except Exception:
        # A user's `__init__` may raise any exception.
        return None


def _without_init(cls: type[BaseException], arguments: tuple[Any, ...], text: str) -> BaseException | None:
    # The user's __init__ may need values that cannot be sent: JAX's exceptions need tracers.
    maker: type[BaseException] = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    try:
        error = maker.__new__(cls, *arguments)
        maker.__init__(error, *arguments)
    except TypeError:
        # The class has its own layout, as UnicodeDecodeError has.
        return None
    error.args = arguments
    return error


def _as_text(cls: type[BaseException], arguments: tuple[Any, ...], text: str) -> BaseException | None:
    return _without_init(cls, (text,), text)


def _text_of(error: BaseException) -> str | None:
    try:
        return str(error)
    except Exception:
        # The user's `__str__` may need attributes that `__init__` sets.
        return None


def _stand_in(nearest: type[BaseException], failure: Failure, deref: values.Deref) -> BaseException:
    name = values.name_of(failure.types[0]) or nearest.__qualname__
    wanted = (RemoteError,) if nearest in (Exception, BaseException, RuntimeError) else (RemoteError, nearest)
    for bases in (wanted, (RemoteError,)):
        try:
            made: type[BaseException] = type(name.rpartition(".")[2], bases, {"__module__": "jitclient.remote"})
            error = made.__new__(made, failure.text)
        except TypeError:
            # The nearest class has its own layout, as ExceptionGroup has.
            continue
        error.args = (failure.text,)
        error.__dict__.update(_attributes(failure, deref))
        return error
    return RemoteError(failure.text)


def answered(reply: bytes, answer: Any, deref: values.Deref = values.no_deref) -> Any:
    """Decode a verb's reply: return its message of type `answer`, or raise its exception.

    Raises:
        TraceFailed: the user's function raised while it was traced.
        BaseException: the daemon raised it for another reason.
    """
    found = decoded_answer(reply, answer)
    if not isinstance(found, Failure):
        return found
    error = to_exception(found, deref)
    raise error if found.is_final else TraceFailed(error)
