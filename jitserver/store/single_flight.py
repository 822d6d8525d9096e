"""Single flight: one thread makes the value of a key, and others that request it meanwhile wait for the result."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Made = TypeVar("Made")


class SingleFlight(Generic[Made]):
    """Shared computation of missing values, at most one at a time for each key.

    An exception of `make` is raised in all waiting calls.

    Args:
        known: returns the value of a key, or None if it must be made.
    """

    def __init__(self, known: Callable[[str], Made | None]) -> None:
        self._known = known
        self._in_flight: dict[str, Future[Made]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], Made]) -> tuple[Made, bool]:
        """Return the known value of a key, or make it.

        Returns:
            The value, and whether this call made it.
        """
        with self._lock:
            found = self._known(key)
            if found is not None:
                return found, False
            future = self._in_flight.get(key)
            first = future is None
            if future is None:
                future = self._in_flight[key] = Future()
        if not first:
            return future.result(), False
        try:
            made = make()
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            future.set_result(made)
            return made, True
        finally:
            with self._lock:
                del self._in_flight[key]
