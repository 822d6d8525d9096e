"""Random generators that the system seeded during imports: each run needs random numbers of its own."""

import gc
import os
import random
import sys
import types
from typing import Any

from jitserver.run.replacement import Replacement

# Maximum; the seeds that the system draws for numpy have 128 bits.
_MAX_USER_SEED_BITS = 64


class Seeding:
    """Context that records the generators of `random` that the system seeds, until other code seeds them."""

    def __init__(self) -> None:
        self._system_seeded: dict[int, random.Random] = {id(random._inst): random._inst}
        self._numpy_generators: list[Any] = []
        self._replacement = Replacement()

    def __enter__(self) -> "Seeding":
        system_seeded, own = self._system_seeded, random.Random.seed

        def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
            own(self, a, version)
            system_seeded.pop(id(self), None)
            if a is None and not isinstance(self, random.SystemRandom):
                system_seeded[id(self)] = self

        self._replacement.put(random.Random, "seed", seed)
        # Bound to the original method when `random` was imported.
        self._replacement.put(random, "seed", types.MethodType(seed, random._inst))
        return self

    def __exit__(self, *_: object) -> None:
        self._replacement.undo()
        self._common = random.getstate()
        numpy = sys.modules.get("numpy.random")
        if isinstance(numpy, types.ModuleType):
            kinds = (numpy.Generator, numpy.RandomState)
            # Add to the list: objects of earlier imports are frozen, and so not among these.
            self._numpy_generators += [one for one in gc.get_objects() if isinstance(one, kinds)]

    def seeded_by_code(self) -> bool:
        """Return whether code has seeded the generator of `random` or of `numpy.random`."""
        numpy: Any = sys.modules.get("numpy.random.mtrand")
        of_numpy = getattr(numpy, "_rand", None)
        is_seeded = of_numpy is not None and not _is_system_seeded(of_numpy)
        return id(random._inst) not in self._system_seeded or is_seeded

    def reseed(self) -> None:
        """Seed all recorded generators again, in a forked process."""
        if id(random._inst) not in self._system_seeded:
            # Undo the seed that Python gives this generator in each forked process.
            random.setstate(self._common)
        for one in self._system_seeded.values():
            one.seed()
        for one in filter(_is_system_seeded, self._numpy_generators):
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
