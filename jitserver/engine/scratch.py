"""Scratch memory for the arguments of small calls: each call writes over those of the call before, and makes no arrays.

JAX takes an array for constant. That these are not is never seen: one connection's calls read them, one after another;
each has ended before the next one writes; and no result lies in their memory.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jitclient.wire.array_transport import ALIGNMENT, HostArray, allocate

FROM_CALL = 64
"""The call of a program on a connection that gets it scratch memory. To make it costs what tens of calls save."""
MOST_BYTES = 1 << 17
"""Of one program's arguments."""
MOST_PROGRAMS = 32
"""Of one connection, which so has 4 MiB at most. The oldest makes room."""

Run = Callable[..., Any]


class Scratch:
    """The arguments of one program on one connection: arrays, and the memory that they are."""

    __slots__ = ("arrays", "calls", "memory")

    def __init__(self) -> None:
        self.calls = 0
        self.arrays: list[jax.Array] = []  # none as yet, or none ever
        self.memory: list[memoryview] = []

    def first(self, run: Run) -> Run:
        """What runs the program once; the calls that follow find scratch memory, where there can be any."""

        def run_first(*leaves: HostArray) -> Any:
            arrays, memory = _aliased(leaves)
            results = run(*(arrays or leaves))
            if arrays and results and _apart(arrays, results):
                self.arrays, self.memory = arrays, memory
            return results

        return run_first

    def drop(self) -> None:
        """Leaves the memory to a call that failed, which may read it still."""
        self.arrays, self.memory = [], []


class Scratches(dict[int, Scratch]):
    """Those of one connection, by the numbers of its session's programs."""

    def __missing__(self, executable: int) -> Scratch:
        if len(self) >= MOST_PROGRAMS:
            del self[next(iter(self))]
        scratch = self[executable] = Scratch()
        return scratch


def _aliased(leaves: Sequence[HostArray]) -> tuple[list[jax.Array], list[memoryview]]:
    """Arrays of these values, and the memory that they are; none where JAX would have them elsewhere."""
    ends = list(itertools.accumulate([-(-leaf.nbytes // ALIGNMENT) * ALIGNMENT for leaf in leaves], initial=0))
    if not 0 < ends[-1] <= MOST_BYTES or jax.default_backend() != "cpu":
        return [], []
    whole = allocate(ends[-1])
    raws = [whole[start : start + leaf.nbytes] for start, leaf in zip(ends, leaves, strict=False)]
    views = [raw.view(leaf.dtype).reshape(leaf.shape) for raw, leaf in zip(raws, leaves, strict=True)]
    for view, leaf in zip(views, leaves, strict=True):
        view[...] = leaf
    arrays = jax.device_put(views, may_alias=True)
    if any(array.unsafe_buffer_pointer() != raw.ctypes.data for array, raw in zip(arrays, raws, strict=True)):
        return [], []
    return arrays, [raw.data for raw in raws]


def _apart(arrays: Sequence[jax.Array], results: Sequence[jax.Array]) -> bool:
    """Whether no result lies in the arguments' memory. One call tells: the compiler has decided it."""
    start, end = arrays[0].unsafe_buffer_pointer(), arrays[-1].unsafe_buffer_pointer() + arrays[-1].nbytes
    return not any(start <= result.unsafe_buffer_pointer() < end for result in results)
