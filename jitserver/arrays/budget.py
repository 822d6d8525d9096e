"""How many bytes of arrays this daemon may hold, and what is said where there is no more room."""

import sys
from collections.abc import Callable, Iterable, Iterator

from jitclient.errors import ArrayBudgetExceeded
from jitclient.notices.labels import size
from jitclient.wire.messages import DeviceInfo
from jitclient.wire.named_arrays import Holdings
from jitserver.platform import memory_limits

_MOST_HOLDERS = 8
_LONGEST = 60


class ArrayBudget:
    """The budget of resident arrays. To count what there is takes long; so it is done only when as many bytes were made
    as there was room for when it was done last, whatever has been freed since.

    Attributes:
        left: so many bytes may be made before the next count. Whoever makes some takes them off, without a lock: what
            two threads lose so is in that count.
    """

    def __init__(self, most: int | None = None, holdings: Callable[[], Holdings] | None = None) -> None:
        self.most = most
        self.left = sys.maxsize if most is None else most
        self._holdings = holdings

    def take(self, nbytes: int, what: str, is_spare: bool = False) -> None:
        """Takes `nbytes` off; counts if need be. What is spare leaves three quarters of the budget to others.

        Raises:
            ArrayBudgetExceeded: there is no room for them.
        """
        kept_free = self.most * 3 // 4 if is_spare and self.most is not None else 0
        self.left -= nbytes
        if self.left < kept_free and nbytes:
            self.recount(nbytes, what, kept_free)

    def recount(self, nbytes: int, what: str, kept_free: int = 0) -> None:
        """Counts, where `left` has fallen too low, and takes the `nbytes` off that there are to be more for `what`.

        Raises:
            ArrayBudgetExceeded: there is no room for them.
        """
        if self.most is None or self._holdings is None:
            self.left = sys.maxsize
            return
        held = self._holdings()
        self.left = self.most - held.nbytes
        if nbytes > max(self.left - kept_free, 0):
            raise ArrayBudgetExceeded(_refusal(nbytes, what, self.most, held))
        self.left -= nbytes


def array_share(devices: Iterable[DeviceInfo]) -> int:
    """Bytes that arrays may take where nobody says: nine tenths of the accelerators' memory, or half of what this
    process may use where arrays live in that.
    """
    limits = [device.memory_bytes for device in devices if device.platform != "cpu" and device.memory_bytes]
    return sum(limits) * 9 // 10 if limits else memory_limits.memory_bytes() // 2


def _refusal(nbytes: int, what: str, most: int, held: Holdings) -> str:
    return (
        f"{what} takes {size(nbytes)} more of the daemon's memory for arrays, which has {size(most)}. "
        f"It holds {size(held.nbytes)}: {'; '.join(_holders(held)) or 'nothing'}. "
        "Let go of arrays (`del`, the end of a program, `jitserver arrays rm NAME`), or give the daemon more "
        "(`jitserver serve --array-memory MIB`)"
    )


def _holders(held: Holdings) -> Iterator[str]:
    """Who holds what, the largest first."""
    found = [(kept.nbytes, kept.arrays, f"kept as {kept.name!r}") for kept in held.kept]
    found += [(one.nbytes, one.arrays, f"pid {one.pid} ({one.program:.{_LONGEST}})") for one in held.sessions]
    found = sorted((holder for holder in found if holder[0]), reverse=True)
    for nbytes, arrays, who in found[:_MOST_HOLDERS]:
        yield f"{who} {size(nbytes)} in {arrays} array{'' if arrays == 1 else 's'}"
    if len(found) > _MOST_HOLDERS:
        yield f"{len(found) - _MOST_HOLDERS} more"
