"""A client that keeps to no rule but the form of frames."""

import contextlib
import struct
from pathlib import Path
from typing import Any

import msgspec

from jitclient.wire.address import Address
from jitclient.wire.channel import WireChannel
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import PROTOCOL, RUN, Attached, Hello, Run, Verb, Welcome
from jitclient.wire.reply import decoded_answer
from jitclient.wire.stream import WireStream

PATIENCE_SECONDS = 60.0
"""Time for which a peer waits for an answer."""
_encode = msgspec.msgpack.encode


class Peer:
    """A client that keeps to no rule. Its failures are of no interest."""

    def __init__(self, path: Path) -> None:
        self.connection = ClientConnection(
            WireChannel(WireStream(Address.parse(f"unix:{path}").connect())), PATIENCE_SECONDS
        )
        self.channel: WireChannel = self.connection._channel
        self.token = b""

    def hello(self, token: bytes = b"", client: bytes = b"attacker") -> None:
        """Begin a session, or join one."""
        hello = Hello(PROTOCOL, "0", "3", {}, token, client)
        welcome: Welcome = decoded_answer(self.connection.request(Verb.HELLO, _encode(hello)), Welcome)
        self.token = welcome.token

    def ask(self, verb: Verb, message: Any) -> None:
        """Send a request, and wait for its answer."""
        self.connection.request(verb, _encode(message))

    def run(self, run: Run, *attachments: Any) -> None:
        """Send a Run, and wait for its answer and for the values that follow it."""
        self.connection.send_frame(RUN, _encode(run), attachments)
        for value in self.connection.reply().values:
            if isinstance(value, Attached):
                self.connection.read_attachment(value.nbytes)

    def write(self, body: bytes) -> None:
        """Send a frame, and wait for the end of the connection."""
        self.channel.stream.write(struct.pack("<I", len(body)) + body)
        while True:
            self.channel.recv()

    def close(self) -> None:
        """Say goodbye, and hang up."""
        with contextlib.suppress(Exception):
            self.ask(Verb.GOODBYE, None)
        self.connection.close()
