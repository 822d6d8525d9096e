"""The memory budget of arrays, and the error raised when it is exceeded."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from jitclient.errors import ArrayBudgetExceeded
from jitclient.wire.labels import size
from jitclient.wire.named_arrays import Holdings, Owned
from jitserver.programs.devices.memories import HOST, Bytes, Memory
from jitserver.system import memory_limits

_MAX_HOLDERS = 8
_MAX_PROGRAM_TEXT = 60


class MemoryBudget:
    """The budget of resident arrays in one memory, in bytes.

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
        where: str = "",
    ) -> None:
        """Create the budget.

        Args:
            limit: the limit in bytes; None: no limit.
            holdings: counts the arrays in this memory.
            free_some: frees arrays of an absent client in this memory; returns False if there are none to free.
            where: the memory, for messages; empty if there is no other.
        """
        self.limit = limit
        self.left = sys.maxsize if limit is None else limit
        self._holdings = holdings
        self.free_some = free_some
        self._where = where and f" {where}"

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
                raise ArrayBudgetExceeded(_refusal(nbytes, what, self.limit, held, self._where))
        self.left -= nbytes

    def holders(self) -> str:
        """Return who holds the arrays, for messages."""
        return "" if self._holdings is None else _held(self._holdings(), self._where)


class ArrayBudget:
    """The budgets of resident arrays, one for each memory.

    Attributes:
        default: the budget of the default device's memory.
    """

    def __init__(self, budgets: Mapping[int, MemoryBudget] = MappingProxyType({})) -> None:
        """Create the whole budget from those of the memories, that of the default device first.

        Everything fits in other memories.
        """
        self._budgets, self._unlimited = budgets, MemoryBudget()
        self.default = next(iter(budgets.values()), self._unlimited)

    def of(self, memory: int) -> MemoryBudget:
        """Return the budget of a memory."""
        return self._budgets.get(memory, self._unlimited)

    def have_room(self, needs: Bytes) -> bool:
        """Return whether these bytes fit without a count."""
        return all(nbytes <= max(self.of(memory).left, 0) for memory, nbytes in needs.items())

    def take(self, needs: Bytes, what: str, is_spare: bool = False) -> None:
        """Subtract these bytes for `what` from the budgets, as `MemoryBudget.take` does.

        Raises:
            ArrayBudgetExceeded: the bytes do not fit.
        """
        for memory, nbytes in needs.items():
            self.of(memory).take(nbytes, what, is_spare)

    def free_some(self, needs: Bytes) -> bool:
        """Free arrays of an absent client in one of these memories; return False if there are none to free."""
        return any(self.of(memory).free_some() for memory in needs)

    def holders(self, needs: Bytes) -> str:
        """Return who holds the arrays in these memories, for messages."""
        return ". ".join(filter(None, [self.of(memory).holders() for memory in needs]))


def limits(memories: Iterable[Memory], given: int | None = None) -> dict[int, int]:
    """Return the limits of the memories, that of the default device first.

    Args:
        memories: the memories.
        given: the limit that the user set for each memory of a device. By default, it is nine tenths of the memory; for
            the host's, and where the size is unknown, half of the memory that this process may use.
    """
    half, found = memory_limits.memory_bytes() // 2, list(memories)
    default = {one.number: half if one.nbytes is None else one.nbytes * 9 // 10 for one in found}
    of_devices = [one.number for one in found if one is found[0] or one.number != HOST]
    return default if given is None else {**default, **dict.fromkeys(of_devices, given)}


def _refusal(nbytes: int, what: str, limit: int, held: Holdings, where: str) -> str:
    return (
        f"{what}: no room for {size(nbytes)} in the daemon's memory budget of {size(limit)} for arrays{where}. "
        f"{_held(held, where)}. "
        "Free arrays (`del`, stop a program, `jitserver arrays rm NAME`), or give the daemon a larger budget "
        "(`jitserver serve --array-memory MIB`)"
    )


def _held(held: Holdings, where: str) -> str:
    return f"The daemon holds {size(held.nbytes)}{where}: {'; '.join(_holders(held)) or 'nothing'}"


def _holders(held: Holdings) -> Iterator[str]:
    """Yield the descriptions of the largest holders of arrays, the largest first."""
    found = [(kept.nbytes, kept.arrays, f"kept as {kept.name!r}", "") for kept in held.kept]
    found += [
        (one.nbytes, one.arrays, f"pid {one.pid} ({one.program:.{_MAX_PROGRAM_TEXT}})", _most_made(one))
        for one in held.sessions
    ]
    found = sorted((holder for holder in found if holder[0]), reverse=True)
    for nbytes, arrays, who, made in found[:_MAX_HOLDERS]:
        yield f"{who} {size(nbytes)} in {arrays} array{'' if arrays == 1 else 's'}{made}"
    if len(found) > _MAX_HOLDERS:
        yield f"{len(found) - _MAX_HOLDERS} more"


def _most_made(owner: Owned) -> str:
    """Return which function made the most of a session's arrays; "" if there is none of a name."""
    for one in owner.made[:1]:
        if one.where:
            return f", of which {one.label:.{_MAX_PROGRAM_TEXT}} at {one.where} made {size(one.nbytes)}"
    return ""
