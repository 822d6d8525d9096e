"""Plant bugs in the capture, the loader, trees, results, manifest and keys, and see that they cost warmth only.

`python -m tests.planted` plants each bug in copies of both packages, one at a time, starts a daemon, and has two fresh
processes run the programs of `programs` one after the other. Their values must be those of plain JAX, to the last bit:
no bug in these rooms may give a wrong value or an error. CONTRIBUTING.md says more.
"""

import argparse
import dataclasses
import fnmatch
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from . import corpus
from .mutants import Mutant, chosen, named, sample
from .trial import SIDES, Bench, Verdict, bench

FAILURES = ("wrong", "error", "hang")


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("--mutants", type=int, default=240, help="how many bugs are chosen (240)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (1)")
    parser.add_argument("--sample", type=int, metavar="N", help="plant N of them only")
    parser.add_argument("--only", nargs="+", type=named, metavar="ID", help="plant these: file:line:operator")
    parser.add_argument("--reached", action="store_true", help="choose only bugs in functions that the programs call")
    parser.add_argument("--sides", choices=sorted(SIDES), default="both", help="whose copy has the bug (both)")
    parser.add_argument("--programs", default="*", metavar="PATTERN", help="run these only, such as 'trees.*'")
    parser.add_argument("--report", type=Path, metavar="FILE", help="a line of JSON for each bug; those in it are done")
    parser.add_argument("--list", action="store_true", help="print the chosen bugs, and plant none")
    return parser.parse_args(arguments)


def picked(options: argparse.Namespace, reaches: Callable[[Mutant], bool]) -> list[Mutant]:
    """The mutants that the options choose; `reaches` says whether the programs call what a mutant is in."""
    if options.only:
        return list(options.only)
    keep = reaches if options.reached else lambda mutant: True
    mutants = chosen(options.mutants, options.seed, keep=keep)
    return mutants if options.sample is None else sample(mutants, options.sample, options.seed)


def counted(verdict: str, reached: bool) -> str:
    """The word under which a verdict is counted."""
    return verdict if reached else f"{verdict} (not reached)"


def reported(report: Path | None, sides: str) -> dict[str, str]:
    """How the bugs that a report has already are counted, by their id."""
    if report is None or not report.exists():
        return {}
    lines = map(json.loads, report.read_text().splitlines())
    return {line["id"]: counted(line["verdict"], line["reached"]) for line in lines if line["sides"] == sides}


def told(verdict: Verdict) -> str:
    """A verdict with the first thing that went wrong, on one line."""
    warm = " and ".join(map(str, verdict.warm)) or "none"
    text = f"{verdict.verdict:<12} {warm} warm, {verdict.seconds:.0f} s" + ", not reached" * (not verdict.reached)
    for problem in verdict.problems[:1]:
        expected, got = (json.dumps(problem[side])[:300] for side in ("expected", "got"))
        text += f"\n    {problem['program']} in process {problem['process']}, of {len(verdict.problems)} problems"
        text += f"\n    expected {expected}\n    got      {got}"
    return text


def progress(text: str) -> None:
    """A line that the next one replaces, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text:.110}", end="", file=sys.stderr, flush=True)


def plant(made: Bench, mutants: Sequence[Mutant], options: argparse.Namespace) -> Counter[str]:
    """Plant the bugs one by one, and count the verdicts."""
    earlier = reported(options.report, options.sides)
    counts = Counter(earlier[str(mutant)] for mutant in mutants if str(mutant) in earlier)
    left = [mutant for mutant in mutants if str(mutant) not in earlier]
    for number, mutant in enumerate(left, 1):
        progress(f"{number}/{len(left)} {mutant}  {dict(counts)}")
        verdict = made.try_out(mutant, options.sides)
        progress("")
        print(f"{mutant} {told(verdict)}", flush=True)
        counts[counted(verdict.verdict, verdict.reached)] += 1
        if options.report is not None:
            with options.report.open("a") as file:
                line = {"id": str(mutant), "sides": options.sides, **dataclasses.asdict(verdict)}
                file.write(json.dumps(line) + "\n")
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool; the status is 0 if no bug gave a wrong value, an error or a hang."""
    options = parsed(arguments)
    if options.list:
        options.reached = False  # nothing runs
        print(*picked(options, bool), sep="\n")
        return 0
    programs = fnmatch.filter(corpus.judged(), options.programs)
    with bench(programs) as made:
        verdict = made.try_without()
        print(f"{len(programs)} programs, no bug: {told(verdict)}", flush=True)
        if verdict.verdict != "right":  # nothing can be said about bugs
            return 2
        counts = plant(made, picked(options, made.reaches), options)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return int(any(word.startswith(FAILURES) for word in counts))


if __name__ == "__main__":
    sys.exit(main())
