"""Time line of this process, for the report that draws its run.

Nothing is added unless `current` is set, which only a report that is written to a file does. Until then, the classes of
`spans.py` are not loaded.
"""

import contextlib
import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jitclient.core.spans import Timeline

current: "Timeline | None" = None
"""Time line of this process; None if no report needs one."""

_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


def begin() -> "Timeline":
    """Begin the time line of this process, unless there is one."""
    global current
    if current is None:
        from jitclient.core.spans import Timeline

        current = Timeline()
    return current


def span(kind: str, label: str = "") -> AbstractContextManager[Any]:
    """Add the work of the `with` block to the time line, if there is one."""
    return _NOTHING if current is None else current.span(kind, label)


def _after_fork() -> None:
    """End the time line in a forked child, which may still leave the spans that it is in."""
    global current
    if current is not None:
        current.unlock()
    current = None


os.register_at_fork(after_in_child=_after_fork)
