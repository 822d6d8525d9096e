"""Random generators that the system seeded during imports: each run needs random numbers of its own."""

import gc
import os
import sys
import types
from typing import Any

# Maximum; the seeds that the system draws for numpy have 128 bits.
_MAX_USER_SEED_BITS = 64


def numpy_generators() -> list[Any]:
    """Return the generators of numpy that there are, but for those that are kept out of collections of garbage."""
    numpy = sys.modules.get("numpy.random")
    if not isinstance(numpy, types.ModuleType):
        return []
    kinds = numpy.Generator, numpy.RandomState
    return [one for one in gc.get_objects() if isinstance(one, kinds)]


def numpy_is_seeded() -> bool:
    """Return whether code has seeded the common generator of `numpy.random`."""
    common: Any = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    return common is not None and not _is_system_seeded(common)


def reseed(generators: list[Any]) -> None:
    """Seed generators of numpy again, in a forked process, if the system has seeded them; Python seeds its own."""
    for one in filter(_is_system_seeded, generators):
        bits = one._bit_generator
        # Also replaces the seed of the generators that this one spawns.
        bits.__setstate__(type(bits)().__reduce__()[2])
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def _is_system_seeded(generator: Any) -> bool:
    """Return whether the system drew a generator's seed."""
    seed = getattr(generator._bit_generator, "seed_seq", None)
    entropy = getattr(seed, "entropy", None)
    return isinstance(entropy, int) and entropy.bit_length() > _MAX_USER_SEED_BITS
