"""Exceptions as messages, from which the client raises an equal exception without its traceback."""

import jax

from jitclient.capture.codec import values
from jitclient.capture.describe.attributes import dict_of
from jitclient.capture.load import Loaded
from jitclient.errors import CaptureError
from jitclient.wire.messages import Failure

_MAX_CAUSES = 5
_MAX_TEXT = 100_000


def is_internal(error: BaseException) -> bool:
    """Return whether an exception is, or was caused by, an internal error of the runtime, as of a broken device."""
    return any(_has_status(one, "INTERNAL") for one in (error, error.__cause__))


def is_exhausted(error: BaseException) -> bool:
    """Return whether an exception says that a device has no memory left."""
    return _has_status(error, "RESOURCE_EXHAUSTED")


def _has_status(error: BaseException | None, status: str) -> bool:
    # JAX's fast path in C++ raises ValueError for any status.
    return isinstance(error, (jax.errors.JaxRuntimeError, ValueError)) and str(error).startswith(f"{status}: ")


class Failed(Exception):  # noqa: N818
    """An exception that is a message already. It stands for the results of a failed call, and is raised by their users.

    Args:
        failure: the message.
    """

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class TraceRaised(Exception):  # noqa: N818
    """The trace of a capture failed.

    Args:
        error: the exception.
        loaded: the capture, to which the message can refer for the user's classes.
        is_final: if False, the client traces the function itself before it raises the exception.
    """

    def __init__(self, error: BaseException, loaded: Loaded, is_final: bool = True) -> None:
        super().__init__(repr(type(error)))
        self.error = error
        self.loaded = loaded
        self.is_final = is_final


def failure_of(error: BaseException, loaded: Loaded | None = None, depth: int = 0) -> Failure:
    """Convert an exception to a message. All failures in replies are made here.

    Args:
        error: the exception.
        loaded: the capture; its objects are sent as references.
        depth: the number of exceptions that this one is a cause of.
    """
    if isinstance(error, Failed):
        return error.failure
    ref = loaded.index_of if loaded is not None else values.no_ref
    text, cause = text_of(error), error.__cause__
    return Failure(
        types=tuple(values.encode_class(cls, ref) for cls in type(error).__mro__ if issubclass(cls, BaseException)),
        text=text,
        arguments=_arguments(error, text, ref),
        notes=tuple(text_of(note) for note in getattr(error, "__notes__", ())),
        cause=failure_of(cause, loaded, depth + 1) if cause is not None and depth < _MAX_CAUSES else None,
        attributes=_attributes(error, ref),
    )


def _attributes(error: BaseException, ref: values.Ref) -> tuple[tuple[str, bytes], ...]:
    """Return the names and encoded values of an exception's attributes, without those that cannot be serialized."""
    sent: list[tuple[str, bytes]] = []
    left = _MAX_TEXT
    for name, value in dict_of(error).items():
        try:
            pair = text_of(name), values.encode(value, ref)
            left -= len(pair[1])
        except (CaptureError, UnicodeEncodeError, RecursionError):
            continue
        if name != "__notes__" and left >= 0:
            sent.append(pair)
    return tuple(sent)


def _arguments(error: BaseException, text: str, ref: values.Ref) -> bytes:
    try:
        arguments = values.encode(error.args, ref)
        if len(arguments) <= _MAX_TEXT:
            return arguments
    except (CaptureError, UnicodeEncodeError, RecursionError):
        pass
    return values.encode((text,))


def text_of(thing: object) -> str:
    """Return the text of an object, truncated and encodable, even if its `__str__` raises an exception."""
    try:
        text = str(thing)
    except Exception as error:
        text = f"<{type(thing).__name__}, whose text raises {type(error).__name__}>"
    text = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    return text.encode("utf-8", "backslashreplace").decode()
