"""Outcomes of failures of one kind."""

import dataclasses
import statistics
from typing import Any


@dataclasses.dataclass
class Result:
    """Counts of one kind of failure.

    Attributes:
        name: the kind.
        injections: how many failures there were.
        hangs: turns that did not end.
        wrong: values that were not right.
        raw: errors that were none of ours.
        good: seconds until the daemon's next good answer.
        details: what hung, was wrong or raised.
        figures: growth of each quantity of a soak per thousand operations, or the cost of an attack.
    """

    name: str
    injections: int = 0
    hangs: int = 0
    wrong: int = 0
    raw: int = 0
    good: list[float] = dataclasses.field(default_factory=list)
    details: list[str] = dataclasses.field(default_factory=list)
    figures: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(self, where: str, told: dict[str, Any], failed: bool = True) -> None:
        """Counts one turn of a client, in which something was made to fail, or else after that."""
        self.injections += failed
        for step, end in told["steps"].items():
            kind = end.partition(":")[0]
            self.hangs += kind == "hang"
            self.wrong += kind == "wrong"
            self.raw += kind == "raw"
            if kind in ("hang", "wrong", "raw"):
                self.details.append(f"{where}, {step}: {end}")
        if failed and told["good"] is not None:
            self.good.append(told["good"])

    def check(self, is_right: bool, otherwise: str) -> None:
        """Counts what is wrong."""
        if not is_right:
            self.wrong += 1
            self.details.append(otherwise)

    @property
    def holds(self) -> bool:
        """Whether nothing hung, was wrong, or raised an error that is none of ours."""
        return not (self.hangs or self.wrong or self.raw)

    def quantile(self, part: float) -> float | None:
        """The seconds within which that part of the next good answers came."""
        if len(self.good) < 2:
            return max(self.good, default=None)
        return statistics.quantiles(self.good, n=100, method="inclusive")[round(part * 100) - 1]
