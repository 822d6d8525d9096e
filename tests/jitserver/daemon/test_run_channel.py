"""How far a program may be ahead of the client whose callbacks it makes."""

from typing import Any

import msgspec
import numpy as np

from jitclient.wire.messages import CALLED_BACK, Callback, CalledBack, Slot, Spec
from jitserver.daemon.run_channel import RunChannel


class Client:
    """A channel to a client that answers one callback when it is waited for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answered = 0
        self.furthest = 0

    def send(self, data: bytes, attachments: Any) -> None:
        self.asked.append(msgspec.msgpack.decode(data[1:], type=Callback).number)
        self.furthest = max(self.furthest, len(self.asked) - self.answered)

    def recv(self) -> bytes:
        assert self.answered < len(self.asked), "nothing is left to answer"
        self.answered += 1
        has_result = self.answered == len(self.asked)
        answer = CalledBack(self.answered, [np.float32(7).tobytes()] if has_result else [])
        return bytes((CALLED_BACK,)) + msgspec.msgpack.encode(answer)


def test_callbacks_without_results_are_waited_for_once_many_are_on_their_way() -> None:
    client: Any = Client()
    channel = RunChannel(client, None, lambda _: None)  # type: ignore[arg-type]
    for _ in range(200):
        assert channel.call_client(0, Slot(()), [np.ones(2, np.float32)]) == []
    assert client.asked == list(range(1, 201))
    assert 1 < client.furthest <= 65


def test_one_with_a_result_is_waited_for_after_those_before_it() -> None:
    client: Any = Client()
    channel = RunChannel(client, None, lambda _: None)  # type: ignore[arg-type]
    for _ in range(3):
        channel.call_client(0, Slot(()), [])
    assert client.answered == 0
    assert channel.call_client(1, Slot((Spec((), "float32"),)), []) == [np.float32(7)]
    assert client.answered == 4
