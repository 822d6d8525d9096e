"""Exceptions as messages, from which the client raises the same exception with the user's frames only."""

from collections.abc import Callable
from typing import Any

from jitclient.codec import values
from jitclient.codec.capture import Loaded
from jitclient.codec.reducers.attributes import dict_of
from jitclient.errors import CaptureError
from jitclient.wire.messages import Failure, Frame

_DEEPEST_CAUSE = 5
_MOST_TEXT = 100_000


class TraceFailed(Exception):  # noqa: N818
    """Making a program raised `error`, in terms of the capture `loaded`. Unless it is final, the client traces the
    function, too, before it raises.
    """

    def __init__(self, error: BaseException, loaded: Loaded, is_final: bool = True) -> None:
        super().__init__(repr(type(error)))
        self.error = error
        self.loaded = loaded
        self.is_final = is_final


def failure_of(error: BaseException, loaded: Loaded | None = None, locations: bytes = b"", depth: int = 0) -> Failure:
    """An exception as a message. `locations` are those of the caller's code, whose lines may have moved since."""
    ref = loaded.index_of if loaded is not None else values.nowhere

    def placed(text: str) -> str:
        return text if loaded is None else loaded.user_text(text, locations)

    def behind(other: BaseException | None) -> Failure | None:
        return failure_of(other, loaded, locations, depth + 1) if other is not None and depth < _DEEPEST_CAUSE else None

    text = placed(text_of(error))
    return Failure(
        types=tuple(values.encode_class(cls, ref) for cls in type(error).__mro__ if issubclass(cls, BaseException)),
        text=text,
        arguments=_arguments(error, text, ref),
        frames=_frames(error, loaded, locations),
        notes=tuple(text_of(note) for note in getattr(error, "__notes__", ())),
        cause=behind(error.__cause__),
        attributes=_attributes(error, placed, ref),
        context=behind(_context(error, loaded)),
        is_alone=error.__suppress_context__,
    )


def _context(error: BaseException, loaded: Loaded | None) -> BaseException | None:
    """The exception that user code was handling. Those that the daemon was handling are hidden."""
    context = error.__context__
    is_users = context is not error.__cause__ and context is not None and _frames(context, loaded, b"")
    return context if is_users else None


def _attributes(error: BaseException, placed: Callable[[str], str], ref: values.Ref) -> tuple[tuple[str, bytes], ...]:
    """The attributes of an exception, as far as they can be serialized."""
    sent: list[tuple[str, bytes]] = []
    room = _MOST_TEXT
    for name, value in dict_of(error).items():
        try:
            pair = text_of(name), values.encode(placed(value) if type(value) is str else value, ref)
            room -= len(pair[1])
        except (CaptureError, UnicodeEncodeError, RecursionError):
            continue
        if name != "__notes__" and room >= 0:
            sent.append(pair)
    return tuple(sent)


def _arguments(error: BaseException, text: str, ref: values.Ref) -> bytes:
    if error.args == (text_of(error),):
        return values.encode((text,))  # in which `placed` has corrected the locations
    try:
        arguments = values.encode(error.args, ref)
        if len(arguments) <= _MOST_TEXT:
            return arguments
    except (CaptureError, UnicodeEncodeError, RecursionError):
        pass
    return values.encode((text,))


def text_of(thing: object) -> str:
    """The text of an object, limited and encodable, even if its `__str__` raises."""
    try:
        text = str(thing)
    except Exception as error:
        text = f"<{type(thing).__name__}, whose text raises {type(error).__name__}>"
    text = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
    return text.encode("utf-8", "backslashreplace").decode()


def _frames(error: BaseException, loaded: Loaded | None, locations: bytes) -> tuple[Frame, ...]:
    if loaded is None or error.__traceback__ is None:
        return ()
    found: list[Any] = loaded.user_frames(error.__traceback__, locations)
    return tuple(Frame(text_of(frame.file), frame.line, frame.name) for frame in found)
