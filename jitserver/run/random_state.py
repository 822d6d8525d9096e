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
    """A context in which generators of `random` are noted that the system seeds, as long as nobody else does."""

    def __init__(self) -> None:
        self._drawn: dict[int, random.Random] = {id(random._inst): random._inst}
        self._of_numpy: list[Any] = []

    def __enter__(self) -> "Seeding":
        drawn, own = self._drawn, random.Random.seed

        def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
            own(self, a, version)
            drawn.pop(id(self), None)
            if a is None and not isinstance(self, random.SystemRandom):
                drawn[id(self)] = self

        self._own = own, random.seed
        random.Random.seed = seed  # type: ignore[method-assign]
        random.seed = types.MethodType(seed, random._inst)  # it was bound when `random` was imported
        return self

    def __exit__(self, *_: object) -> None:
        random.Random.seed, random.seed = self._own  # type: ignore[method-assign]
        self._common = random.getstate()
        numpy = sys.modules.get("numpy.random")
        if isinstance(numpy, types.ModuleType):
            kinds = (numpy.Generator, numpy.RandomState)
            # added, as what earlier imports made is frozen, and not among these objects
            self._of_numpy += [one for one in gc.get_objects() if isinstance(one, kinds)]

    def again(self) -> None:
        """Seed them all again, in a process that was forked."""
        if id(random._inst) not in self._drawn:
            random.setstate(self._common)  # Python seeds it in each process that is forked
        for one in self._drawn.values():
            one.seed()
        for one in filter(_is_drawn, self._of_numpy):
            bits = one._bit_generator
            bits.__setstate__(type(bits)().__reduce__()[2])  # with the seed of those that it spawns
        multiprocessing.process.current_process().authkey = os.urandom(32)


def _is_drawn(generator: Any) -> bool:
    """Whether the system drew a generator's seed."""
    seed = getattr(generator._bit_generator, "seed_seq", None)
    entropy = getattr(seed, "entropy", None)
    return isinstance(entropy, int) and entropy.bit_length() > _BITS_OF_A_USERS_SEED
