"""Decoders where many threads need the first one of a kind at once."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = textwrap.dedent(
    """
    import sys, threading
    import msgspec
    from jitclient.wire.encoding import decoded
    from jitclient.wire.messages import Lookup, Prepare, Signature, Spec

    sys.setswitchinterval(1e-6)
    spec = Spec((3,), "float32")
    signature = Signature(b"", (spec,), (("a", b"1"),), (0,), (("o", b"v"),), (("c", b"v"),))
    message = Prepare(Lookup("a", "b", ("x",), signature), "f", "here")
    data, ready, found = msgspec.msgpack.encode(message), threading.Barrier(8), []

    def decode():
        ready.wait()
        found.append(decoded(data, Prepare))

    threads = [threading.Thread(target=decode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [message] * 8
    """
)


@pytest.mark.slow
def test_the_first_messages_of_a_kind_may_come_at_once() -> None:
    # Without the lock every second process crashes, if it is alone.
    assert [subprocess.run([sys.executable, "-c", PROGRAM]).returncode for _ in range(12)] == [0] * 12


def test_all_messages_are_decoded_by_these() -> None:
    top = Path(__file__).parents[3]
    sources = [path for folder in ("client/jitclient", "jitserver") for path in (top / folder).rglob("*.py")]
    others = [
        path.name for path in sources if "msgpack.decode" in (text := path.read_text()) or "msgpack.Decoder(" in text
    ]
    assert others == ["encoding.py"]
