"""Receivers of outcomes: the future of a `submit`, and the results of a `map` in order."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

from jitclient.core.clock import monotonic
from jitclient.core.tracebacks import hide_machinery
from jitclient.pools.progress import Bar
from jitclient.pools.schedule import Result


class FutureSink:
    """Receiver of the outcome of a single call."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()

    def start(self, index: int) -> bool:
        """Return whether to run the call: unless it was cancelled before."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def finish(self, results: Sequence[Result]) -> None:
        """Set the future's outcome."""
        for _, value, error in results:
            # A pool that is killed may cancel a call whose result is under way.
            if self.future.done():
                continue
            if error is None:
                self.future.set_result(value)
            else:
                self.future.set_exception(error)

    def cancel(self, index: int) -> None:
        """Cancel the future, also if a worker that was lost had begun the call."""
        if self.future.cancel():
            self.future.set_running_or_notify_cancel()
        else:
            self.future.set_exception(CancelledError())


class MapSink:
    """Receiver of the outcomes of a map, which iterates over the values in the order of the calls.

    Args:
        timeout: seconds from now within which each value must be there; None: no limit.
    """

    def __init__(self, timeout: float | None) -> None:
        self._deadline = None if timeout is None else monotonic() + timeout
        self._found: dict[int, tuple[Any, BaseException | None]] = {}
        self._changed = threading.Condition()
        self._finished = 0
        self._bar: Bar | None = None
        self._is_cancelled = False

    def start(self, index: int) -> bool:
        """Return whether to run a call: unless the iteration has ended."""
        return not self._is_cancelled

    def finish(self, results: Sequence[Result]) -> None:
        """Keep outcomes until their turn."""
        with self._changed:
            self._found.update({index: (value, error) for index, value, error in results})
            self._finished += len(results)
            if self._bar is not None:
                self._bar.show(self._finished)
            self._changed.notify()

    def cancel(self, index: int) -> None:
        """Let the iteration raise an exception at a call that will not run."""
        self.finish([(index, None, CancelledError())])

    def values(self, more: Callable[[int], tuple[int, bool]], begin_bar: Callable[[], Bar]) -> Iterator[Any]:
        """Iterate over the values; calls that wait when the iteration ends are cancelled.

        Args:
            more: adds the next calls once so many values were taken; returns the number of all calls added, and whether
                there will be no more.
            begin_bar: shows a progress bar.
        """
        found = self._found
        try:
            with self._changed:
                self._bar = begin_bar()
                self._bar.show(self._finished)
            index, (count, is_all) = 0, more(0)
            while index < count:
                value, error = found.pop(index) if index in found else self._wait_for(index)
                if error is not None:
                    try:
                        raise error
                    finally:
                        del error
                index += 1
                if not is_all:
                    count, is_all = more(index)
                yield value
                del value
        except BaseException as raised:
            hide_machinery(raised)
            raise
        finally:
            self._is_cancelled = True
            with self._changed:
                if self._bar is not None:
                    self._bar.close()
                    self._bar = None

    def _wait_for(self, index: int) -> tuple[Any, BaseException | None]:
        with self._changed:
            left = None if self._deadline is None else max(0.0, self._deadline - monotonic())
            if not self._changed.wait_for(lambda: index in self._found, left):
                raise TimeoutError
            return self._found.pop(index)
