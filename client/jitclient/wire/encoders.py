"""The encoder of messages that hold text for people, such as paths, which may be no UTF-8."""

from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode


def encoded(message: Any) -> bytes:
    """Encode a message. What UTF-8 cannot hold is escaped, such as the bytes of a path in another encoding."""
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
