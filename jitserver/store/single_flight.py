"""One maker per key: whoever asks meanwhile waits for what the first one makes."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Once(Generic[Made]):
    """Runs the maker of a key once at a time, where it is not `known`. What it raises is raised to all who waited."""

    def __init__(self, known: Callable[[str], Made | None]) -> None:
        self._known = known
        self._under_way: dict[str, Future[Made]] = {}
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], Made]) -> tuple[Made, bool]:
        """What is known, or else made; and whether it was this call that made it."""
        with self._lock:
            found = self._known(key)
            if found is not None:
                return found, False
            future = self._under_way.get(key)
            first = future is None
            if future is None:
                future = self._under_way[key] = Future()
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
                del self._under_way[key]
