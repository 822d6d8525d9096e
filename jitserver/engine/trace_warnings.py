"""Warnings of what is traced and compiled for a client, who is to see them as if that had happened there."""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.codec import values
from jitclient.errors import CaptureError
from jitclient.wire.messages import Warned
from jitserver.engine.stand_ins import put

_OWN_CACHE = "persistent compilation cache entry"
"""What JAX says of a disk that fails: no client's concern."""

_here = threading.local()


def watch() -> None:
    """Has this process tell every warning, and each to the thread that raises it."""
    warnings.simplefilter("always")
    put(warnings, "showwarning", _telling)


def _telling(show: Callable[..., None]) -> Callable[..., None]:
    def told(message: Warning | str, category: type[Warning], *where: Any) -> None:
        found = getattr(_here, "found", None)
        if found is None or _OWN_CACHE in str(message):
            show(message, category, *where)
        else:
            found[Warned(_named(category), str(message))] = None

    return told


@contextlib.contextmanager
def collected() -> Iterator[dict[Warned, None]]:
    """The warnings that this thread raises meanwhile, each once."""
    before = getattr(_here, "found", None)
    found: dict[Warned, None] = {}
    _here.found = found
    try:
        yield found
    finally:
        _here.found = before


def _named(category: type[Warning]) -> bytes:
    try:
        return values.encode(category)
    except CaptureError:  # a class of the user's own
        return values.encode(UserWarning)
