"""Encoders and decoders of messages."""

import functools
import threading
from typing import Any, TypeVar, cast

import msgspec

_making = threading.Lock()
T = TypeVar("T")


@functools.cache
def decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    """Return the decoder of a message type. Thread-safe."""
    with _making:
        return msgspec.msgpack.Decoder(kind)


def decoded(data: bytes | memoryview, kind: type[T]) -> T:
    """Decode a message.

    Raises:
        msgspec.MsgspecError: the data is not of that type.
    """
    found: T = decoder(cast("Any", kind)).decode(data)
    return found


_encode = msgspec.msgpack.Encoder().encode


def encoded(message: Any) -> bytes:
    """Encode a message. Escape text that UTF-8 cannot hold, such as a path in another encoding."""
    try:
        return _encode(message)
    except UnicodeEncodeError:
        return _encode(_escaped(message))


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, msgspec.Struct):
        return type(value)(**{name: _escaped(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return type(value)(map(_escaped, value)) if type(value) in (list, tuple) else value
