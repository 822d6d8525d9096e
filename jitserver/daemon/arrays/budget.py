"""The memory budget of arrays, and the error if it is exceeded."""

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
    """The budget of resident arrays. Counting them takes long, so it is done only when as many bytes were made as were
    free at the last count, whatever was freed since.

    Attributes:
        left: bytes that may be made before the next count. Makers subtract theirs without a lock: what a race between
            two threads loses is corrected by the next count.
    """

    def __init__(
        self,
        most: int | None = None,
        holdings: Callable[[], Holdings] | None = None,
        free_some: Callable[[], bool] = lambda: False,
    ) -> None:
        """With the bytes, who counts the arrays, and what frees some that are not missed, if there are any."""
        self.most = most
        self.left = sys.maxsize if most is None else most
        self._holdings = holdings
        self._free_some = free_some

    def take(self, nbytes: int, what: str, is_spare: bool = False) -> None:
        """Subtracts `nbytes` for `what`; counts if necessary. Spare copies must leave three quarters free.

        Raises:
            ArrayBudgetExceeded: they do not fit.
        """
        kept_free = self.most * 3 // 4 if is_spare and self.most is not None else 0
        self.left -= nbytes
        if self.left < kept_free and nbytes:
            self.recount(nbytes, what, kept_free)

    def recount(self, nbytes: int, what: str, kept_free: int = 0) -> None:
        """Counts all arrays, frees some if need be, then subtracts `nbytes` for `what`, as `take` does."""
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
    """Default budget: nine tenths of the accelerators' memory; without accelerators, half of the memory that this
    process may use.
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
    """The holders of arrays, the largest first."""
    found = [(kept.nbytes, kept.arrays, f"kept as {kept.name!r}") for kept in held.kept]
    found += [(one.nbytes, one.arrays, f"pid {one.pid} ({one.program:.{_LONGEST}})") for one in held.sessions]
    found = sorted((holder for holder in found if holder[0]), reverse=True)
    for nbytes, arrays, who in found[:_MOST_HOLDERS]:
        yield f"{who} {size(nbytes)} in {arrays} array{'' if arrays == 1 else 's'}"
    if len(found) > _MOST_HOLDERS:
        yield f"{len(found) - _MOST_HOLDERS} more"
