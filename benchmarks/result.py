"""Measurements against targets: ratios and differences within one turn of all contenders, and verdicts."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.measure import Samples

OURS = "jitserver"


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
    """DESIGN's target for one contender: at most so many seconds, or compared with another contender.

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
        """Return the measurements, turn by turn; none where a contender is missing."""
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
        unit: of the figures: `s`, `MiB`, or empty for a plain number.
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
