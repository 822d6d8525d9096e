"""Runs programs over several devices one after another.

Two of them at once may wait for each other: on accelerators if they are launched in another order on another device, on
the CPU because XLA has one thread for each device, which one program needs all of. There, XLA ends the process then.

So a program keeps the devices while it waits for a callback. If the callback in turn waits for such a program, it would
wait forever.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jitclient.errors import SessionBusy

_PATIENCE_SECONDS = 10.0
"""A callback that takes this long may be waiting for a program of its own client."""

_one_at_a_time = threading.Lock()


class _Here(threading.local):
    client: object = None


_here = _Here()


_callbacks: dict[object, object] = {}  # for which the running program waits: by a token each, its client


def work_for(client: object) -> None:
    """Says whose requests this thread carries out."""
    _here.client = client


def alone(run: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function that computes on several devices.

    Raises:
        SessionBusy: they wait for a callback of the same client, which waits for this.
    """
    with _turn():
        results = run(*arguments)
        # Elsewhere, devices do what was launched in order.
        return jax.block_until_ready(results) if jax.default_backend() == "cpu" else results


def in_callbacks(ask: Callable[..., Any]) -> Callable[..., Any]:
    """`ask`, noting when the client is asked."""
    client = _here.client

    def noted(*arguments: Any) -> Any:
        callback = object()
        _callbacks[callback] = client
        try:
            return ask(*arguments)
        finally:
            del _callbacks[callback]

    return noted


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    client, seen = _here.client, set[object]()
    while not _one_at_a_time.acquire(timeout=_PATIENCE_SECONDS):
        own = {callback for callback, asked in list(_callbacks.items()) if asked is client}
        if own & seen:
            raise SessionBusy(
                "a program over several devices was called while another one waits for a callback of this process, "
                "which seems to wait for this call: such a callback cannot compute on several devices"
            )
        seen = own
    try:
        yield
    finally:
        _one_at_a_time.release()
