"""The memory budget of arrays, and the error raised when it is exceeded."""

import sys
from collections.abc import Callable, Iterable, Iterator

from jitclient.errors import ArrayBudgetExceeded
from jitclient.wire.labels import size
from jitclient.wire.messages import DeviceInfo
from jitclient.wire.named_arrays import Holdings
from jitserver.system import memory_limits

_MOST_HOLDERS = 8
_LONGEST = 60


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
        most: int | None = None,
        holdings: Callable[[], Holdings] | None = None,
        free_some: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the budget.

        Args:
            most: the limit in bytes; None: no limit.
            holdings: counts the arrays.
            free_some: frees arrays of an absent client; returns False if there are none to free.
        """
        self.most = most
        self.left = sys.maxsize if most is None else most
        self._holdings = holdings
        self._free_some = free_some

    def take(self, nbytes: int, what: str, is_spare: bool = False) -> None:
        """Subtract `nbytes` for `what`; count all arrays if necessary. A spare copy must leave three quarters free.

        Raises:
            ArrayBudgetExceeded: the bytes do not fit.
        """
        kept_free = self.most * 3 // 4 if is_spare and self.most is not None else 0
        self.left -= nbytes
        if self.left < kept_free and nbytes:
            self.recount(nbytes, what, kept_free)

    def recount(self, nbytes: int, what: str, kept_free: int = 0) -> None:
        """Count all arrays, free some if necessary, then subtract `nbytes` for `what`, as `take` does.

        Raises:
            ArrayBudgetExceeded: the bytes do not fit.
        """
        if self.most is None or self._holdings is None:
            self.left = sys.maxsize
            return
        while True:
            held = self._holdings()
            self.left = self.most - held.nbytes
            if nbytes <= max(self.left - kept_free, 0):
                break
            if kept_free or not self._free_some():
                raise ArrayBudgetExceeded(_refusal(nbytes, what, self.most, held))
        self.left -= nbytes


def array_share(devices: Iterable[DeviceInfo]) -> int:
    """Return the default budget.

    The default is nine tenths of the accelerators' memory; without accelerators, half of the memory that this process
    may use.
    """
    limits = [device.memory_bytes for device in devices if device.platform != "cpu" and device.memory_bytes]
    return sum(limits) * 9 // 10 if limits else memory_limits.memory_bytes() // 2


def _refusal(nbytes: int, what: str, most: int, held: Holdings) -> str:
    return (
        f"{what} takes {size(nbytes)} more of the daemon's memory budget of {size(most)} for arrays. "
        f"It holds {size(held.nbytes)}: {'; '.join(_holders(held)) or 'nothing'}. "
        "Free arrays (`del`, end a program, `jitserver arrays rm NAME`), or give the daemon a larger budget "
        "(`jitserver serve --array-memory MIB`)"
    )


def _holders(held: Holdings) -> Iterator[str]:
    """Yield the descriptions of the largest holders of arrays, the largest first."""
    found = [(kept.nbytes, kept.arrays, f"kept as {kept.name!r}") for kept in held.kept]
    found += [(one.nbytes, one.arrays, f"pid {one.pid} ({one.program:.{_LONGEST}})") for one in held.sessions]
    found = sorted((holder for holder in found if holder[0]), reverse=True)
    for nbytes, arrays, who in found[:_MOST_HOLDERS]:
        yield f"{who} {size(nbytes)} in {arrays} array{'' if arrays == 1 else 's'}"
    if len(found) > _MOST_HOLDERS:
        yield f"{len(found) - _MOST_HOLDERS} more"
