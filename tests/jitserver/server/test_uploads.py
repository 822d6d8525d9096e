"""Uploads of captures."""

import pytest

from jitclient.digests import digest
from jitclient.errors import ProtocolError
from jitclient.wire.messages import Upload
from jitserver.server.uploads import Incoming


def test_the_parts_make_the_payload_once() -> None:
    incoming = Incoming()
    key = digest(b"abcdef").hex()
    incoming.add(Upload(key, 0, b"abc"))
    incoming.add(Upload(key, 3, b"def"))
    assert incoming.take(key) == b"abcdef"
    with pytest.raises(ProtocolError, match="does not match its key"):
        incoming.take(key)


def test_a_capture_that_is_too_large_is_refused_and_discarded() -> None:
    incoming = Incoming(most=10)
    incoming.add(Upload("key", 0, bytes(8)))
    with pytest.raises(ProtocolError, match="larger than 10 bytes"):
        incoming.add(Upload("key", 8, bytes(3)))
    with pytest.raises(ProtocolError, match="out of order"):
        incoming.add(Upload("key", 8, bytes(1)))
