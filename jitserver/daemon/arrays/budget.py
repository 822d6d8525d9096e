"""The memory budget of arrays, and the error raised when it is exceeded."""

import sys
from collections.abc import Callable, Iterable, Iterator

from jitclient.errors import ArrayBudgetExceeded
from jitclient.wire.labels import size
from jitclient.wire.messages import DeviceInfo
from jitclient.wire.named_arrays import Holdings
from jitserver.system import memory_limits

_MAX_HOLDERS = 8
_MAX_PROGRAM_TEXT = 60


class ArrayBudget:
    """The budget of resident arrays in bytes.

    Counting the arrays is slow, so it is done only after as many bytes were allocated as were free at the last count;
    bytes freed since then are ignored.

    Attributes:
        left: bytes that may be allocated before the next count. Callers subtract without a lock; the next count
            corrects the errors of races between threads.
    """

    def __init__(
        self,
        limit: int | None = None,
        holdings: Callable[[], Holdings] | None = None,
        free_some: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the budget.

        Args:
            limit: the limit in bytes; None: no limit.
            holdings: counts the arrays.
            free_some: frees arrays of an absent client; returns False if there are none to free.
        """
        self.limit = limit
        self.left = sys.maxsize if limit is None else limit
        self._holdings = holdings
        self.free_some = free_some

    def take(self, nbytes: int, what: str, is_spare: bool = False) -> None:
        """Subtract `nbytes` for `what`; count all arrays if necessary. A spare copy must leave three quarters free.

        Raises:
            ArrayBudgetExceeded: the bytes do not fit.
        """
        kept_free = self.limit * 3 // 4 if is_spare and self.limit is not None else 0
        self.left -= nbytes
        if self.left < kept_free and nbytes:
            self.recount(nbytes, what, kept_free)

    def recount(self, nbytes: int, what: str, kept_free: int = 0) -> None:
        """Count all arrays, free some if necessary, then subtract `nbytes` for `what`, as `take` does.

        Raises:
            ArrayBudgetExceeded: the bytes do not fit.
        """
        if self.limit is None or self._holdings is None:
            self.left = sys.maxsize
            return
        while True:
            held = self._holdings()
            self.left = self.limit - held.nbytes
            if nbytes <= max(self.left - kept_free, 0):
                break
            if kept_free or not self.free_some():
                raise ArrayBudgetExceeded(_refusal(nbytes, what, self.limit, held))
        self.left -= nbytes

    def holders(self) -> str:
        """Return who holds the arrays, for messages."""
        return "" if self._holdings is None else _held(self._holdings())


def array_share(devices: Iterable[DeviceInfo]) -> int:
    """Return the default budget.

    The default is nine tenths of the accelerators' memory; without accelerators, half of the memory that this process
    may use.
    """
    limits = [device.memory_bytes for device in devices if device.platform != "cpu" and device.memory_bytes]
    return sum(limits) * 9 // 10 if limits else memory_limits.memory_bytes() // 2


def _refusal(nbytes: int, what: str, limit: int, held: Holdings) -> str:
    return (
        f"{what}: no room for {size(nbytes)} in the daemon's memory budget of {size(limit)} for arrays. "
        f"{_held(held)}. "
        "Free arrays (`del`, stop a program, `jitserver arrays rm NAME`), or give the daemon a larger budget "
        "(`jitserver serve --array-memory MIB`)"
    )


def _held(held: Holdings) -> str:
    return f"The daemon holds {size(held.nbytes)}: {'; '.join(_holders(held)) or 'nothing'}"


def _holders(held: Holdings) -> Iterator[str]:
    """Yield the descriptions of the largest holders of arrays, the largest first."""
    found = [(kept.nbytes, kept.arrays, f"kept as {kept.name!r}") for kept in held.kept]
    found += [(one.nbytes, one.arrays, f"pid {one.pid} ({one.program:.{_MAX_PROGRAM_TEXT}})") for one in held.sessions]
    found = sorted((holder for holder in found if holder[0]), reverse=True)
    for nbytes, arrays, who in found[:_MAX_HOLDERS]:
        yield f"{who} {size(nbytes)} in {arrays} array{'' if arrays == 1 else 's'}"
    if len(found) > _MAX_HOLDERS:
        yield f"{len(found) - _MAX_HOLDERS} more"
