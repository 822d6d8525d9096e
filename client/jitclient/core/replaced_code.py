"""How often the code or the defaults of any function were replaced, of which Python tells audit hooks.

A comparison of the count is faster than one of a function's code, because reading that is an audit event, too.
"""

import functools
import sys
from typing import Any

count = [0]


def _on_event(event: str, arguments: tuple[Any, ...], count: list[int] = count) -> None:
    # `__defaults__ = None` counts as a deletion.
    if event in ("object.__setattr__", "object.__delattr__"):
        count[0] += 1


@functools.cache
def start_counting() -> None:
    """Count from now on; Python cannot remove an audit hook."""
    sys.addaudithook(_on_event)
