"""Scratch memory for the arguments of small calls: each call overwrites the arguments of the last one.

Reusing the arrays saves making new ones. JAX assumes that arrays are constant, but the change is never visible: only
the calls of one connection read these arrays, one after another; each call finishes before the next one writes; and no
result shares their memory.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jitclient.wire.array_transport import ALIGNMENT, HostArray, allocate
from jitserver.programs.devices.backend import backend

FROM_CALL = 64
"""Number of the call of a program, on one connection, that allocates scratch memory.

The allocation costs as much as tens of calls save.
"""
MAX_BYTES = 1 << 17
"""Maximum bytes of one program's arguments."""
MAX_PROGRAMS = 32
"""Maximum number of programs with scratch memory per connection, so at most 4 MiB. The oldest is evicted."""

Run = Callable[..., Any]


class Scratch:
    """The arguments of one program on one connection: arrays and their memory."""

    __slots__ = ("arrays", "calls", "memory")

    def __init__(self) -> None:
        self.calls = 0
        # Empty until allocated, or if allocation is impossible.
        self.arrays: list[jax.Array] = []
        self.memory: list[memoryview] = []

    def first(self, run: Run) -> Run:
        """Return a function that runs the program once and allocates scratch memory for later calls, if possible."""

        def run_first(*leaves: HostArray) -> Any:
            arrays, memory = _aliased(leaves)
            results = run(*(arrays or leaves))
            if arrays and results and _are_disjoint(arrays, results):
                self.arrays, self.memory = arrays, memory
            return results

        return run_first

    def drop(self) -> None:
        """Stop reusing the memory, after a failed call that may still read it."""
        self.arrays, self.memory = [], []


class Scratches(dict[int, Scratch]):
    """The scratch memory of one connection, by the numbers of its session's programs."""

    def __missing__(self, executable: int) -> Scratch:
        if len(self) >= MAX_PROGRAMS:
            del self[next(iter(self))]
        scratch = self[executable] = Scratch()
        return scratch


def _aliased(leaves: Sequence[HostArray]) -> tuple[list[jax.Array], list[memoryview]]:
    """Return arrays of these values and the memory that they share; empty lists if JAX would copy the values."""
    ends = list(itertools.accumulate([-(-leaf.nbytes // ALIGNMENT) * ALIGNMENT for leaf in leaves], initial=0))
    if not 0 < ends[-1] <= MAX_BYTES or not backend().shares_host_memory:
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


def _are_disjoint(arrays: Sequence[jax.Array], results: Sequence[jax.Array]) -> bool:
    """Return whether no result shares the arguments' memory. The compiler decides this, so it holds for all calls."""
    start, end = arrays[0].unsafe_buffer_pointer(), arrays[-1].unsafe_buffer_pointer() + arrays[-1].nbytes
    return not any(start <= result.unsafe_buffer_pointer() < end for result in results)
