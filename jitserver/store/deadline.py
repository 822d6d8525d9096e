"""Deadlines for storage, which may hang without an error: a network disk whose server is gone, a failing drive."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from jitclient.core.threads import Thread

Result = TypeVar("Result")


class StorageHangs(OSError):  # noqa: N818
    """Storage did not answer within a deadline, and has not answered since."""


class Deadlines:
    """Runs the operations on one storage in threads of their own, so that no caller waits longer than its deadline.

    No thread can be interrupted while its storage hangs. Further operations fail at once until all that are overdue
    have returned, so the number of waiting threads stays small.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._overdue: set[Future[Any]] = set()

    def run(self, act: Callable[[], Result], seconds: float) -> Result:
        """Return the result of an operation, or raise its exception.

        Raises:
            StorageHangs: the operation did not return within `seconds`, or an earlier one is overdue.
            OSError: the system has no thread for the operation.
        """
        if self._overdue:
            raise StorageHangs("an earlier operation has not returned")
        future: Future[Result] = Future()
        try:
            Thread(lambda: self._complete(future, act), "storage").start()
        except RuntimeError as error:
            raise OSError(str(error)) from error
        try:
            return future.result(seconds)
        except TimeoutError:
            with self._lock:
                # The operation itself may have raised this exception, or have just returned.
                if not future.done():
                    self._overdue.add(future)
                    raise StorageHangs(f"it has not answered for {seconds:.0f} s") from None
            return future.result()

    def _complete(self, future: "Future[Result]", act: Callable[[], Result]) -> None:
        result, error = None, None
        try:
            result = act()
        except BaseException as raised:
            error = raised
        with self._lock:
            self._overdue.discard(future)
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)
