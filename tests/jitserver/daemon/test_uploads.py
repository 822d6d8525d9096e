"""Uploads of captures."""

import pytest

from jitclient.core.digests import digest
from jitclient.errors import DaemonUnavailable, ProtocolError
from jitclient.wire.messages import Upload
from jitserver.daemon.uploads import Incoming, UploadLimit


def test_the_parts_make_the_payload_once() -> None:
    incoming = Incoming()
    key = digest(b"abcdef").hex()
    incoming.add(Upload(key, 0, b"abc"))
    incoming.add(Upload(key, 3, b"def"))
    with incoming.taken(key) as payload:
        assert payload == b"abcdef"
    with pytest.raises(ProtocolError, match="does not match its key"), incoming.taken(key):
        pass


def test_a_capture_that_is_too_large_is_refused_and_discarded() -> None:
    incoming = Incoming(max_bytes=10)
    incoming.add(Upload("key", 0, bytes(8)))
    with pytest.raises(ProtocolError, match="larger than 10 bytes"):
        incoming.add(Upload("key", 8, bytes(3)))
    with pytest.raises(ProtocolError, match="out of order"):
        incoming.add(Upload("key", 8, bytes(1)))


def test_the_uploads_of_all_connections_share_a_limit() -> None:
    limit = UploadLimit(10)
    one, two = Incoming(limit=limit), Incoming(limit=limit)
    key = digest(bytes(8)).hex()

    def refuses() -> None:
        with pytest.raises(DaemonUnavailable, match="processing 8 bytes of captures"):
            two.add(Upload(key, 0, bytes(8)))

    def made() -> None:
        with one.taken(key):
            refuses()  # the program is not yet made

    for left in (made, one.discard, lambda: one.add(Upload(key, 0, b""))):
        one.add(Upload(key, 0, bytes(8)))
        refuses()
        left()
        two.add(Upload(key, 0, bytes(8)))
        two.discard()


def test_a_refused_upload_leaves_its_room() -> None:
    incoming = Incoming(max_bytes=10, limit=UploadLimit(10))
    for _ in range(3):
        incoming.add(Upload("key", 0, bytes(8)))
        with pytest.raises(ProtocolError, match="larger than"):
            incoming.add(Upload("key", 8, bytes(3)))
