"""Verdicts for people: a line for each, and the reasons below."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.corpus.trial import Verdict

_REASONS = 5


def tell(verdict: Verdict) -> None:
    """Say at once how a trial ended."""
    print(f"{verdict.name}: {word(verdict)}", file=sys.stderr, flush=True)


def show(verdicts: list[Verdict]) -> None:
    """Print a table, and the reasons of what is not right or not warm."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("program", "kind", "lines", "verdict", "plain", "JAX's cache", "first", "second"):
        table.add_column(column, justify="left" if column in ("program", "kind", "verdict") else "right")
    for each in verdicts:
        times = [f"{seconds:.1f} s" for seconds in each.seconds.values()] or [""] * 4
        table.add_row(each.name, each.kind, str(each.lines), word(each), *times)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table, markup=False)
    for each in verdicts:
        for reason in (each.wrong + each.local + ([] if each.warm else each.why) + each.fresh)[:_REASONS]:
            console.print(f"{each.name}: {reason}", markup=False, highlight=False)
    right, warm = (sum(getattr(each, what) for each in verdicts) for what in ("right", "warm"))
    console.print(f"{len(verdicts)} programs: {right} right, {warm} warm", markup=False, highlight=False)


def word(verdict: Verdict) -> str:
    """The verdict in a word or two."""
    if not verdict.seconds:
        return "does not run"
    if not verdict.right:
        return "wrong"
    if verdict.warm:
        return "right, warm"
    return "right, local" if verdict.local else "right, cold"
