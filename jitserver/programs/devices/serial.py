"""Serial execution of programs that span several devices.

Two such programs at once may wait for each other: on accelerators, if two devices launch them in different orders; on
the CPU, because XLA has one thread for each device and a program needs all of these threads. On the CPU, XLA then
aborts the process.

A program therefore occupies the devices while it waits for a callback. A callback that in turn waits for such a program
would wait indefinitely; `run_serially` detects this case.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jitclient.errors import SessionBusy
from jitserver.programs.devices.backend import backend

_PATIENCE_SECONDS = 10.0
"""Seconds after which a callback is suspected of waiting for a program of its own client."""

_device_lock = threading.Lock()


class _Current(threading.local):
    client: object = None


_thread_state = _Current()


# Callbacks for which the running program waits: a unique token -> the client.
_callbacks: dict[object, object] = {}


def set_client(client: object) -> None:
    """Set the client whose requests this thread carries out."""
    _thread_state.client = client


def client() -> object:
    """Return the client whose requests this thread carries out; None if it has none."""
    return _thread_state.client


def run_serially(run: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function that computes on several devices.

    Raises:
        SessionBusy: the running program waits for a callback of the same client, and the callback waits for this call.
    """
    with _turn():
        results = run(*arguments)
        # Other backends execute programs in launch order, so there is no need to wait.
        return jax.block_until_ready(results) if backend().finishes_calls else results


def recording_callbacks(call_client: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call_client` wrapped so that the callbacks in progress, and their client, are recorded."""
    client = _thread_state.client

    def recorded(*arguments: Any) -> Any:
        callback = object()
        _callbacks[callback] = client
        try:
            return call_client(*arguments)
        finally:
            del _callbacks[callback]

    return recorded


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    client, seen = _thread_state.client, set[object]()
    while not _device_lock.acquire(timeout=_PATIENCE_SECONDS):
        own = {callback for callback, owner in dict(_callbacks).items() if owner is client}
        if own & seen:
            raise SessionBusy(
                "a program over several devices was called while another one waits for a callback of this process, "
                "which seems to wait for this call. Such a callback cannot compute on several devices."
            )
        seen = own
    try:
        yield
    finally:
        _device_lock.release()
