"""Queued calls that the next daemon can repeat, because this process still has the values of all arguments.

A call that takes arrays of the daemon cannot be repeated, since these are lost together with its results. A call of
values alone can: if its daemon dies or fails, the first use of a result makes the call once more, and waits for it. The
results then take the place of the lost ones. A call is forgotten as soon as one of its results has been read, so that
all results are those of one run.

The values are copied, because the program may change its arrays after the call. The copies are limited: beyond that,
the oldest calls are forgotten, and their results raise ArrayLost like those of other calls.
"""

import collections
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from jitclient.jaxside.interop import is_jax_array

MAX_BYTES = 64 << 20
"""Maximum bytes of all values that are kept."""

_KINDS = (np.ndarray, np.generic, bool, int, float, complex)


class Result(Protocol):
    """The part of an array on the daemon that is needed here."""

    deleted: bool

    def take_place_of(self, lost: Any) -> None:
        """Give the lost array the handle of this one."""


Again = Callable[[Sequence[Any]], Sequence[Result]]
"""Function that makes a call with these leaves, waits for it, and returns its results."""


class Repeatable:
    """A call whose results are not read yet."""

    __slots__ = ("__weakref__", "_again", "_arrays", "_gone", "_leaves", "nbytes", "number")

    def __init__(self, again: Again, leaves: Sequence[Any], arrays: Iterable[Any]) -> None:
        self._again: Again | None = again
        self._gone = _kept.gone  # the module has no globals any more when the process exits
        self.nbytes = sum(getattr(leaf, "nbytes", 0) for leaf in leaves)
        self.number = -1  # until there is room
        self._leaves: Sequence[Any] = ()
        self._arrays = tuple(map(weakref.ref, arrays))
        if _kept.make_room(self):
            self._leaves = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        else:
            self.forget()

    def __del__(self) -> None:
        """Give the room back. Runs inside garbage collections: no lock, no I/O."""
        self._gone.append((self.number, self.nbytes))

    def forget(self) -> None:
        """Free the values. The call cannot be repeated any more."""
        self._again, self._leaves = None, ()
        self._gone.append((self.number, self.nbytes))

    def repeat(self) -> bool:
        """Make the call again, once, for the results that are still wanted; return False if that is impossible.

        Raises:
            BaseException: the call raised it.
        """
        again, leaves = self._again, self._leaves
        self.forget()
        if again is None:
            return False
        for lost, made in zip(self._arrays, again(leaves), strict=True):
            array = lost()
            if array is not None and not array.deleted:
                made.take_place_of(array)
        return True


def are_values(leaves: Iterable[Any]) -> bool:
    """Return whether all leaves of a call are values of this process, and copies of them can be made."""
    return all(isinstance(leaf, _KINDS) or is_jax_array(leaf) for leaf in leaves)


class _Kept:
    """The calls that can be repeated, the oldest first."""

    def __init__(self) -> None:
        self._calls: dict[int, weakref.ref[Repeatable]] = {}
        self._nbytes = 0
        self._numbers = itertools.count()
        self.lock = threading.RLock()
        self.gone: collections.deque[tuple[int, int]] = collections.deque()
        """Numbers and bytes of forgotten calls, to be subtracted."""

    def make_room(self, call: Repeatable) -> bool:
        """Forget the oldest calls until there is room for one more; return False if it is too large."""
        with self.lock:
            if call.nbytes > MAX_BYTES:
                return False
            self._subtract()
            while self._nbytes + call.nbytes > MAX_BYTES:
                oldest = self._calls[next(iter(self._calls))]()
                if oldest is not None:
                    oldest.forget()
                self._subtract()
            call.number = next(self._numbers)
            self._calls[call.number] = weakref.ref(call)
            self._nbytes += call.nbytes
            return True

    def _subtract(self) -> None:
        while self.gone:
            number, nbytes = self.gone.popleft()
            if self._calls.pop(number, None) is not None:
                self._nbytes -= nbytes


_kept = _Kept()
os.register_at_fork(after_in_child=lambda: setattr(_kept, "lock", threading.RLock()))
