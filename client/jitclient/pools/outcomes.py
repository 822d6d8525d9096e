"""Outcomes of calls, as a worker sends them: a value, or an exception with the text of its traceback."""

import traceback
from collections.abc import Sequence
from typing import Any

from jitclient.core.tracebacks import hide_machinery
from jitclient.errors import RemoteError
from jitclient.pools import pickling


class RemoteTraceback(Exception):  # noqa: N818
    """Traceback of an exception in the worker that raised it: the cause of that exception in the driver."""

    def __str__(self) -> str:
        return str(self.args[0])


PLAIN, PICKLED, RAISED = range(3)
"""Kinds of outcomes."""

Outcome = tuple[int, Any]
"""Kind; and the value, its pickle, or the pickle of (the exception's pickle, its summary, its traceback's text)."""


def returned(value: Any, name: str) -> Outcome:
    """Return the outcome of a call that returned."""
    if pickling.is_plain(value):
        return PLAIN, value
    try:
        return PICKLED, pickling.dumps_in_worker(value)
    except Exception as error:
        error.add_note(f"{name} returned this value, which cannot be sent to the driver: {type(value).__qualname__}")
        return raised(error, "")


def raised(error: BaseException, where: str) -> Outcome:
    """Return the outcome of a call that raised an exception.

    Args:
        error: the exception.
        where: the worker, for people.
    """
    hide_machinery(error)
    text = "".join(traceback.format_exception(error))
    summary = "".join(traceback.format_exception_only(error)).strip()
    try:
        data = pickling.dumps_in_worker(error)
        pickling.loads(data)
    except Exception:
        data = b""
    return RAISED, pickling.dumps_in_worker((data, summary, f'\n"""on {where}:\n{text}"""'))


def results_of(indices: Sequence[int], found: Sequence[Outcome]) -> list[tuple[int, Any, BaseException | None]]:
    """Return index, value and exception of each of these outcomes."""
    pairs = zip(indices, found, strict=True)
    return [(index, one[1], None) if one[0] == PLAIN else (index, *result_of(one)) for index, one in pairs]


def result_of(outcome: Outcome) -> tuple[Any, BaseException | None]:
    """Return the value of a call, and the exception that it raised.

    An exception that cannot be unpickled is a `RemoteError` with its text.
    """
    kind, value = outcome
    try:
        if kind == PLAIN:
            return value, None
        value = pickling.loads(value)
        if kind == PICKLED:
            return value, None
    except Exception as error:
        error.add_note("the result of this call cannot be unpickled in this program")
        return None, error
    data, summary, text = value
    try:
        raised_there: BaseException = pickling.loads(data)
    except Exception:
        raised_there = RemoteError(summary)
    raised_there.__cause__ = RemoteTraceback(text)
    return None, raised_there
