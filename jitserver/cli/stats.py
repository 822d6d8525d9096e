"""The command `jitserver stats`: what programs have saved, added up over days, months and scripts."""

import dataclasses
import datetime
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Self

import click

from jitclient.core import program_stats
from jitclient.core.program_stats import ProgramStats
from jitserver.cli.common import json_option, print_table, report, seconds

_DAYS = 30
_MONTH = len("2026-11")
_MAX_SCRIPTS = 20
_COLUMNS = ["programs run", "saved", "found", "made", "made again", "compilations found", "compiled here"]
_COUNTED = [name for name in ProgramStats.__struct_fields__ if name not in ("at", "script")]


@dataclasses.dataclass
class Sums:
    """Sums of the figures of programs that ended; the fields are those of `ProgramStats`."""

    programs: int = 0
    saved: float = 0.0
    found: int = 0
    made: int = 0
    made_seconds: float = 0.0
    remade: int = 0
    remade_seconds: float = 0.0
    compilations_found: int = 0
    compiled: int = 0
    compiled_seconds: float = 0.0

    def add(self, one: ProgramStats) -> Self:
        """Add the figures of a program."""
        self.programs += 1
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(one, name))
        return self


@click.command()
@click.option("--days", type=click.IntRange(min=1), metavar="N", help=f"Only the last N days. [default: {_DAYS}]")
@click.option("--month", "by_month", is_flag=True, help="All that is recorded, added up by month.")
@json_option
def stats(days: int | None, by_month: bool) -> None:
    """Show what your programs have saved on this machine, by day and by script.

    Each program records its figures when it ends. JITSERVER_STATS=0 turns that off.
    """
    if days is not None and by_month:
        raise click.UsageError("--days and --month exclude each other.")
    first = "" if by_month else _first_day(days or _DAYS).isoformat()
    # Days are those of the local time zone; the records have UTC.
    dated = [(datetime.date.fromtimestamp(one.at).isoformat(), one) for one in program_stats.recorded()]
    chosen = [(day[: _MONTH if by_month else None], one) for day, one in dated if day >= first]
    by_period = _added_up(chosen, lambda pair: pair[0])
    by_script = dict(
        sorted(_added_up(chosen, lambda pair: pair[1].script).items(), key=lambda item: item[1].saved, reverse=True)
    )
    total, full = Sums(), program_stats.full_months()
    for _, one in chosen:
        total.add(one)
    unit = "month" if by_month else "day"
    report(
        {
            f"{unit}s": _plain(unit, sorted(by_period.items())),
            "scripts": _plain("script", by_script.items()),
            "total": dataclasses.asdict(total),
            "incomplete_months": full,
        },
        lambda: _print(unit, by_period, by_script, total, full),
    )


def _first_day(days: int) -> datetime.date:
    try:
        return datetime.date.today() - datetime.timedelta(days=days - 1)
    except OverflowError:
        return datetime.date.min


def _added_up(
    chosen: Iterable[tuple[str, ProgramStats]], name_of: Callable[[tuple[str, ProgramStats]], str]
) -> dict[str, Sums]:
    found: dict[str, Sums] = {}
    for pair in chosen:
        found.setdefault(name_of(pair), Sums()).add(pair[1])
    return found


def _plain(name: str, sums: Iterable[tuple[str, Sums]]) -> list[dict[str, object]]:
    return [{name: key, **dataclasses.asdict(value)} for key, value in sums]


def _print(unit: str, by_period: dict[str, Sums], by_script: dict[str, Sums], total: Sums, full: list[str]) -> None:
    if not by_period:
        click.echo("nothing is recorded: no program that used jitserver has ended in this time")
        return
    rows = [_row(name, sums) for name, sums in sorted(by_period.items())]
    print_table([unit, *_COLUMNS], [*rows, _row("total", total)])
    print_table(["script", *_COLUMNS], [_row(name, sums) for name, sums in islice(by_script.items(), _MAX_SCRIPTS)])
    if len(by_script) > _MAX_SCRIPTS:
        click.echo(f"and {len(by_script) - _MAX_SCRIPTS:,} more scripts: show them with --json")
    if full:
        click.echo(f"incomplete, because so many programs ended: {', '.join(full)}")


def _row(name: str, sums: Sums) -> list[str]:
    return [
        name,
        f"{sums.programs:,}",
        seconds(max(0.0, sums.saved)),
        f"{sums.found:,}",
        _priced(sums.made, sums.made_seconds),
        _priced(sums.remade, sums.remade_seconds),
        f"{sums.compilations_found:,}",
        _priced(sums.compiled, sums.compiled_seconds),
    ]


def _priced(count: int, price: float) -> str:
    return f"{count:,} ({seconds(price)})" if count else "0"
