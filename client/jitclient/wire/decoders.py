"""Decoders of messages, one made at a time.

What msgspec knows of a class of messages, it collects when a decoder of it is made, or at the first `decode`. A thread
that decodes such a message meanwhile ends the process with a segmentation fault (msgspec 0.22). So all messages are
decoded by these.
"""

import functools
import threading
from typing import Any, TypeVar, cast

import msgspec

_making = threading.Lock()
T = TypeVar("T")


@functools.cache
def decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    """The decoder of messages of a type. Safe to use from many threads."""
    with _making:
        return msgspec.msgpack.Decoder(kind)


def decoded(data: bytes | memoryview, kind: type[T]) -> T:
    """The message of that type.

    Raises:
        msgspec.MsgspecError: the data is none.
    """
    found: T = decoder(cast("Any", kind)).decode(data)
    return found
