"""Random generators that were seeded by the system when modules were imported: each run needs numbers of its own."""

import gc
import multiprocessing.process
import os
import random
import sys
import types
from typing import Any

_BITS_OF_A_USERS_SEED = 64  # at most; those that the system draws for numpy have 128


class Seeding:
    """A context in which generators of `random` are noted that the system seeds."""

    def __init__(self) -> None:
        self._noted: list[random.Random] = [random._inst]
        self._of_numpy: list[Any] = []

    def __enter__(self) -> "Seeding":
        noted, own = self._noted, random.Random.seed

        def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
            if a is None and not isinstance(self, random.SystemRandom):
                noted.append(self)
            own(self, a, version)

        self._own = own
        random.Random.seed = seed  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        random.Random.seed = self._own  # type: ignore[method-assign]
        numpy = sys.modules.get("numpy.random")
        if isinstance(numpy, types.ModuleType):
            kinds = (numpy.Generator, numpy.RandomState)
            # added, as what earlier imports made is frozen, and not among these objects
            self._of_numpy += [one for one in gc.get_objects() if isinstance(one, kinds)]

    def again(self) -> None:
        """Seed them all again, in a process that was forked."""
        for one in self._noted:
            one.seed()
        for one in filter(_is_drawn, self._of_numpy):
            bits = one._bit_generator
            bits.state = type(bits)().state
        multiprocessing.process.current_process().authkey = os.urandom(32)


def _is_drawn(generator: Any) -> bool:
    """Whether the system drew a generator's seed."""
    seed = getattr(generator._bit_generator, "seed_seq", None)
    entropy = getattr(seed, "entropy", None)
    return isinstance(entropy, int) and entropy.bit_length() > _BITS_OF_A_USERS_SEED
