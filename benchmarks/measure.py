"""The measuring itself: contenders take turns, and what counts is a quotient or a difference within one turn of all.

So a machine that is slow for a minute is slow for every contender, and the comparison holds.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import Progress

OURS = "jitserver"


@dataclasses.dataclass(frozen=True)
class Effort:
    """How thoroughly to measure; `quick` shows that everything runs, and its figures mean nothing."""

    quick: bool = False

    def rounds(self, full: int) -> int:
        """How many turns each contender has."""
        return 2 if self.quick else full

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
    """What each contender took, turn by turn, and why some are not among them."""

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


@dataclasses.dataclass(frozen=True)
class Summary:
    """A median, and the quartiles around it as its spread."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        """Of at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(statistics.median(values), low, high)


@dataclasses.dataclass(frozen=True)
class Target:
    """What DESIGN asks of one contender: at most so many seconds, or compared with another contender.

    Attributes:
        most: the limit.
        times: the contender that `most` is a multiple of.
        beyond: the contender that `most` is seconds on top of.
        of: whose target it is.
        not_yet: why nothing is measured.
    """

    most: float
    times: str = ""
    beyond: str = ""
    of: str = OURS
    not_yet: str = ""

    def values(self, taken: Mapping[str, Sequence[float]]) -> list[float]:
        """What was measured, turn by turn; empty where somebody is missing."""
        other = self.times or self.beyond
        if self.of not in taken or (other and other not in taken):
            return []
        pairs = zip(taken[self.of], taken[other] if other else taken[self.of], strict=True)
        if self.times:
            return [mine / theirs for mine, theirs in pairs]
        return [mine - theirs if self.beyond else mine for mine, theirs in pairs]

    def result(self, taken: Mapping[str, Sequence[float]]) -> dict[str, Any]:
        """As plain data, with the verdict."""
        fields = {"most": self.most, "times": self.times, "beyond": self.beyond, "of": self.of}
        values = [] if self.not_yet else self.values(taken)
        if not values:
            return {**fields, "measured": None, "verdict": "not yet" if self.not_yet else self._why_none(taken)}
        measured = Summary.of(values)
        verdict = "met" if measured.median <= self.most else "missed"
        return {**fields, "measured": dataclasses.asdict(measured), "verdict": verdict}

    def _why_none(self, taken: Mapping[str, Sequence[float]]) -> str:
        return "not compared" if self.of in taken else "failed"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a scenario's result.

    Attributes:
        what: what was done.
        samples: one figure a turn, by contender.
        targets: what DESIGN asks.
        at: where the line is on the axis along which the scenario grows.
        unit: of the figures: `s`, or empty for a plain number.
        note: what else to know.
    """

    what: str
    samples: Samples = dataclasses.field(default_factory=lambda: Samples({}))
    targets: tuple[Target, ...] = ()
    at: float | None = None
    unit: str = "s"
    note: str = ""

    def result(self) -> dict[str, Any]:
        """As plain data."""
        taken = self.samples.taken
        others = [name for name in taken if name != OURS and OURS in taken]
        ratios = {name: Summary.of(Target(math.inf, times=name).values(taken)) for name in others}
        return {
            "what": self.what,
            "at": self.at,
            "unit": self.unit,
            "rounds": max(map(len, taken.values()), default=0),
            "costs": {name: dataclasses.asdict(Summary.of(values)) for name, values in taken.items()},
            "ratios": {name: dataclasses.asdict(summary) for name, summary in ratios.items()},
            "targets": [target.result(taken) for target in self.targets],
            "failed": self.samples.failed,
            "missing": self.samples.missing,
            "note": self.note or "; ".join(target.not_yet for target in self.targets if target.not_yet),
        }


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def _told(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def _shown(turns: range, label: str) -> Iterator[int]:
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        yield from progress.track(turns, description=label)
