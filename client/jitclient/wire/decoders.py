"""Decoders of messages, created one at a time.

msgspec collects its information about a message class when a decoder is created, or at the first `decode`. If another
thread decodes such a message meanwhile, the process crashes (msgspec 0.22). So all messages are decoded by these.
"""

import functools
import threading
from typing import Any, TypeVar, cast

import msgspec

_making = threading.Lock()
T = TypeVar("T")


@functools.cache
def decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    """The decoder of a message type. Thread-safe."""
    with _making:
        return msgspec.msgpack.Decoder(kind)


def decoded(data: bytes | memoryview, kind: type[T]) -> T:
    """Decode a message.

    Raises:
        msgspec.MsgspecError: the data is not of that type.
    """
    found: T = decoder(cast("Any", kind)).decode(data)
    return found
