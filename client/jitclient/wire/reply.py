"""Replies of the daemon: values, or failures.

The reply to a Run is a frame, followed by the values that are attached to it:

    ┌──────────────┬─────────────────────────────────────────────────────────────────────────────────┬─ ─ ─ ─ ─┐
    │ REPLY, 1 byte│ msgpack: [number, failures, values, used_donations, shared, returns_block]      │ attached
    └──────────────┴─────────────────────────────────────────────────────────────────────────────────┴─ ─ ─ ─ ─┘
      failures         [[[handle, ...], Failure], ...]
      values           [bytes of a small array | [1, nbytes] of an attached one | Failure | position of it, ...]
      used_donations   [[handle, leaf], ...]

If the values are `shared`, the attachments are in a block of shared memory instead. A Failure is [2, types, text, ...].

The reply to a verb is one value:

    ┌──────────────┬──────────────────┐   ┌──────────────┬──────────────────┐
    │ OK, 1 byte   │ msgpack: message │   │FAILED, 1 byte│ msgpack: Failure │
    └──────────────┴──────────────────┘   └──────────────┴──────────────────┘
"""

from typing import Any

from jitclient.wire.encoding import decoded, encoded
from jitclient.wire.messages import Attached, Failure, Message

OK, FAILED = b"\0", b"\1"


class Reply(Message):
    """Reply to the Run of that number.

    A failed call is identified by its first result, or 0 if it has none. Its results raise its failure from then on,
    and so do results computed from them. A Failure is sent once for handles that fail in a row, and once for all
    values: thousands of equal ones would be longer than a frame.
    """

    number: int
    failures: list[tuple[list[int], Failure]] = []
    values: list[bytes | Attached | Failure | int] = []
    # Pairs of a call, identified by its first result, and a donated leaf that it used.
    used_donations: list[tuple[int, int]] = []
    # Whether the attached values are in `into`, or without it in `block`.
    shared: bool = False
    # Whether `block` comes back; if not, arrays on the daemon still use it.
    returns_block: bool = False

    def add_failure(self, handle: int, failure: Failure) -> None:
        """Add the failure of a handle."""
        if self.failures and self.failures[-1][1] == failure:
            self.failures[-1][0].append(handle)
        else:
            self.failures.append(([handle], failure))

    def set_values(self, values: list[bytes | Attached | Failure | int]) -> None:
        """Set the values, in the order of the handles."""
        first: dict[Failure, int] = {}
        self.values = []
        for number, value in enumerate(values):
            position = first.setdefault(value, number) if type(value) is Failure else number
            self.values.append(value if position == number else position)


def encoded_answer(answer: Any) -> bytes:
    """Encode the reply to a verb: a message, or a Failure."""
    return (FAILED if isinstance(answer, Failure) else OK) + encoded(answer)


def decoded_answer(reply: bytes, kind: Any) -> Any:
    """Decode the reply to a verb: a message of type `kind`, or a Failure."""
    return decoded(reply[1:], kind if reply[:1] == OK else Failure)
