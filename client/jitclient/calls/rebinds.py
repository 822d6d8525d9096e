"""Numbers and texts that a trace puts into cells of closures, as in `nonlocal steps; steps = float(steps)`.

A process that finds the program has no trace: it puts them there itself, so that whatever reads the cells later finds
what it would find with plain JAX. Schedules of optax with a cosine are such functions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jitclient.capture.codec import values
from jitclient.capture.dump import Capture
from jitclient.capture.user_code.names import content_of
from jitclient.wire.messages import Rebind

_PLAIN = {bool, bytes, complex, float, int, str, type(None)}


def contents(captured: Capture) -> dict[int, Any]:
    """Return what the captured cells hold, by their numbers in the capture."""
    return {number: content_of(cell) for number, cell in captured.cells().items()}


def rebinds_since(before: Mapping[int, Any], captured: Capture, is_as_before: Callable[[], bool]) -> tuple[Rebind, ...]:
    """Return what a trace has put into cells, if it is all that the trace changed; otherwise nothing.

    Args:
        before: contents of the cells before the trace.
        captured: the capture from before the trace.
        is_as_before: returns whether the function is equal to that of the capture. It is called while the cells hold
            what they held then.
    """
    cells = captured.cells()
    now = {number: content_of(cell) for number, cell in cells.items()}
    changed = [number for number in cells if now[number] is not before.get(number, now[number])]
    if not changed or not {type(held[number]) for held in (before, now) for number in changed} <= _PLAIN:
        return ()
    try:
        for number in changed:
            cells[number].cell_contents = before[number]
        if not is_as_before():
            return ()
    finally:
        for number in changed:
            cells[number].cell_contents = now[number]
    return tuple(Rebind(number, values.encode(now[number])) for number in changed)


def rebind(captured: Capture, rebinds: Sequence[Rebind]) -> None:
    """Put into the cells what the trace of a program that was found put there."""
    cells = captured.cells()
    for each in rebinds:
        cells[each.cell].cell_contents = values.decode(each.value, values.no_deref)
