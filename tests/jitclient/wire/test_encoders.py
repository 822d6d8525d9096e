"""Messages whose text is not UTF-8."""

import msgspec

from jitclient.wire.encoding import decoded, encoded


class Message(msgspec.Struct, array_like=True):
    """Text at all depths."""

    path: str
    all: list[tuple[str, int]]
    names: dict[str, bytes]


def test_what_utf_8_cannot_hold_is_escaped() -> None:
    message = Message("/tmp/\udcff", [("ü", 1), ("\udc80", 2)], {"\udcff": b"\xff"})
    found = decoded(encoded(message), Message)
    assert found == Message("/tmp/\\udcff", [("ü", 1), ("\\udc80", 2)], {"\\udcff": b"\xff"})
