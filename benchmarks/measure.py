"""The measuring itself: contenders take turns, so that a machine slow for a minute is slow for every one of them."""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import Progress


@dataclasses.dataclass(frozen=True)
class Effort:
    """How thoroughly to measure; `quick` shows that everything runs, and its figures mean nothing."""

    quick: bool = False
    max_rounds: int = sys.maxsize

    def rounds(self, full: int) -> int:
        """How many turns each contender has."""
        return 1 if self.quick else min(full, self.max_rounds)

    def warm(self, full: int) -> int:
        """How many turns before do not count, where the first turn is as good as a later one."""
        return 0 if self.quick else full

    def seconds(self, full: float) -> float:
        """For how long one sample repeats what it times."""
        return 0.01 if self.quick else full

    def sizes(self, *full: int, quick: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The sizes at which cost is measured."""
        return (quick or full[:2]) if self.quick else full

    def one(self, full: int, quick: int) -> int:
        """A single size."""
        return quick if self.quick else full


@dataclasses.dataclass
class Samples:
    """The samples of each contender, turn by turn, and why some contenders have none."""

    taken: dict[str, list[Any]]
    failed: dict[str, str] = dataclasses.field(default_factory=dict)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)

    def of(self, pick: Callable[[Any], float]) -> "Samples":
        """The same with one figure picked from each sample."""
        taken = {name: [pick(sample) for sample in samples] for name, samples in self.taken.items()}
        return dataclasses.replace(self, taken=taken)


def interleave(contenders: Mapping[str, Callable[[], Any]], rounds: int, label: str, warm: int = 1) -> Samples:
    """Lets each contender take a sample, then each another one, and so on; one that raises is out.

    Args:
        contenders: by name, what takes one sample.
        rounds: how many samples each takes.
        label: what a terminal shows meanwhile.
        warm: so many rounds before do not count.
    """
    samples = Samples({name: [] for name in contenders})
    for number in _shown(range(-warm, rounds), label):
        for name in list(samples.taken):
            try:
                sample = contenders[name]()
            except Exception as error:
                samples.failed[name] = _told(error)
                del samples.taken[name]
                continue
            if number >= 0:
                samples.taken[name].append(sample)
    return samples


def per_call(call: Callable[[], Any], seconds: float) -> float:
    """Seconds that one call takes, on average over about so many seconds of them."""
    clock, count = time.perf_counter, 0
    start = clock()
    while True:
        call()
        count += 1
        taken = clock() - start
        if taken >= seconds:
            return taken / count


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def _told(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _shown(turns: range, label: str) -> Iterator[int]:
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        yield from progress.track(turns, description=label)
