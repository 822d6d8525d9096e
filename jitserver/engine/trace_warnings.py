"""Collects the warnings of traces and compilations, which the client shows as its own."""

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from jitclient.codec import values
from jitclient.errors import CaptureError
from jitclient.wire.messages import Warned

_OWN_CACHE = "persistent compilation cache entry"
"""In JAX's warnings of a failing disk, which do not concern clients."""

_here = threading.local()


def watch() -> None:
    """Enables all warnings, and lets each thread collect its own."""
    warnings.simplefilter("always")
    show = warnings.showwarning

    def told(message: Warning | str, category: type[Warning], *where: Any) -> None:
        found = getattr(_here, "found", None)
        if found is None or _OWN_CACHE in str(message):
            show(message, category, *where)
        else:
            found[Warned(_named(category), str(message))] = None

    warnings.showwarning = told  # type: ignore[assignment]  # the other arguments are passed on


@contextlib.contextmanager
def collected() -> Iterator[dict[Warned, None]]:
    """Collects the warnings of this thread until the end, each once."""
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
    except CaptureError:  # a class of user code
        return values.encode(UserWarning)
