"""Callbacks: functions of this process that a program on the daemon calls while this process waits for it."""

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from jitclient.errors import DaemonLost, NotSent
from jitclient.session.session import Session
from jitclient.wire.array_transport import HostArray, inline_limit, pack, unpack_value
from jitclient.wire.encoding import decoded
from jitclient.wire.messages import CALLED_BACK, Callback, CalledBack, Slot

_encode = msgspec.msgpack.Encoder().encode


class Callbacks:
    """Functions of one program, by slot, in the form in which JAX makes XLA call them."""

    def __init__(self, functions: Sequence[Callable[..., tuple[Any, ...]]], slots: Sequence[Slot]) -> None:
        self._functions = functions
        self._slots = slots

    @contextlib.contextmanager
    def answered(self, session: Session) -> Iterator[list[BaseException]]:
        """Answer callbacks while the session waits for a Run. Called with the session's lock held.

        The callbacks run on this thread, and may use the session. After an exception, no further callback is called.

        Yields:
            A list, which receives the exception if a callback raises.
        """
        connection = session.connect()
        raised: list[BaseException] = []

        def on_callback(body: bytes) -> None:
            callback = decoded(body, Callback)
            pairs = zip(callback.arguments, callback.specs, strict=True)
            arguments = [unpack_value(connection.read_attachment, *pair) for pair in pairs]
            attachments: list[HostArray] = []
            answer = CalledBack(callback.number, failed=True)
            try:
                if not raised:
                    with session.yielded():
                        results = self._call(callback.slot, arguments)
                    max_inline = inline_limit(len(results))
                    answer = CalledBack(callback.number, [pack(array, attachments, max_inline) for array in results])
            except BaseException as error:
                # Catch every exception, because the daemon waits for an answer in any case.
                raised.append(error)
            try:
                connection.send_frame(CALLED_BACK, _encode(answer), attachments)
            except NotSent as error:
                # Only the answer was not sent: the Run was.
                raise DaemonLost(str(error)) from error

        connection.on_callback = on_callback
        try:
            yield raised
        finally:
            connection.on_callback = None

    def _call(self, slot: int, arguments: Sequence[Any]) -> tuple[Any, ...]:
        function = self._functions[slot]
        return function(None, *arguments)[1:] if self._slots[slot].takes_token else function(*arguments)


def as_raised(raised: BaseException) -> BaseException:
    """Return the exception of a call whose callback raised: JAX's exception, which quotes the traceback."""
    from jax.errors import JaxRuntimeError
    from tblib import Traceback  # only needed after a failure

    # Drop the frame of `on_callback`, and replace the other frames, which would keep the arrays of the call alive.
    below = raised.__traceback__ and raised.__traceback__.tb_next
    raised = raised.with_traceback(Traceback(below).as_traceback() if below else None)
    if isinstance(raised, KeyboardInterrupt):
        return raised
    quoted = "".join(traceback.format_exception(raised)).rstrip("\n")
    error: BaseException = JaxRuntimeError(f"INTERNAL: CpuCallback error calling callback: {quoted}")
    error.__cause__ = raised
    return error
