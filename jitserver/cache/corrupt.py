"""Stored data that cannot be used."""

from typing import TypeVar

import msgspec

from jitclient.wire.decoders import decoded

T = TypeVar("T")


class Corrupt(Exception):  # noqa: N818
    """What is stored is not what was written, or another version wrote it."""


def unpacked(data: bytes | memoryview, kind: type[T]) -> T:
    """The message of that type that was stored.

    Raises:
        Corrupt: the data is none.
    """
    try:
        return decoded(data, kind)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"no {kind.__name__} is stored there: {error}") from error
