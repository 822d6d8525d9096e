"""Results for people: a line for each row, with ratios, spreads and verdicts."""

import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.result import OURS

_STYLES = {"met": "green", "missed": "red", "failed": "bold red"}


def show_machine(machine: dict[str, Any]) -> None:
    """Prints where and with what it ran."""
    console = _console()
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    where = (
        f"{machine['date']}: {machine['cores']} cores, {machine['processor']}, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB, {machine['system']}, load {machine['load_average']:.2f}"
    )
    what = f"Python {machine['python']}, on {machine['platforms']}, {versions}"
    console.print(f"{where}\n{what}", markup=False, highlight=False)
    if machine["warning"]:
        console.print(machine["warning"], style="bold yellow", markup=False)


def show(name: str, rows: list[dict[str, Any]]) -> None:
    """Prints a table of rows, and below it who was missing or failed."""
    table = Table(title=name.replace("_", " "), title_justify="left", box=box.SIMPLE_HEAD)
    contenders = _contenders(rows)
    table.add_column("what", max_width=44)
    for column in (*contenders, "target", "measured", ""):
        table.add_column(column, no_wrap=column not in contenders)
    for row in rows:
        cells = [_cost(row, contender) for contender in contenders]
        first, *others = _targets(row) or [("", "", Text())]
        table.add_row(row["what"], *cells, *first)
        for target in others:
            table.add_row("", *("" for _ in cells), *target)
    console = _console()
    console.print(table, markup=False)
    console.print(f"below each figure: {OURS}'s in proportion to it, and the quartiles of that", style="dim")
    for line in _remarks(rows):
        console.print(line, style="yellow", markup=False)


def figure(value: float, unit: str) -> str:
    """A figure with three digits."""
    if unit != "s":
        return f"{value:.3g} {unit}" if unit else f"{value:.3g}x"
    for limit, scale, name in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if abs(value) < limit:
            return f"{value * scale:.3g} {name}"
    return f"{value:.3g} s"


def target_text(target: dict[str, Any], unit: str) -> str:
    """Return a target as text, like `<= 0.7x bare socket`."""
    if target["times"]:
        text = f"<= {target['most']:g}x {target['times']}"
    elif target["beyond"]:
        text = f"<= {target['beyond']} + {figure(target['most'], unit)}"
    else:
        text = f"<= {figure(target['most'], unit)}"
    return text if target["of"] == OURS else f"{target['of']} {text}"


def measured_text(target: dict[str, Any], unit: str) -> str:
    """Return a measurement as text, with its spread."""
    if target["measured"] is None:
        return ""
    unit = "" if target["times"] else unit
    median, low, high = (figure(target["measured"][name], unit) for name in ("median", "low", "high"))
    sign = "+" if target["beyond"] and target["measured"]["median"] >= 0 else ""
    return f"{sign}{median} [{low}, {high}]"


def _contenders(rows: list[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row["costs"])
    return sorted(names, key=lambda name: name != OURS)


def _cost(row: dict[str, Any], contender: str) -> str:
    if contender not in row["costs"]:
        return ""
    cost, ratio = row["costs"][contender], row["ratios"].get(contender)
    text = figure(cost["median"], row["unit"])
    if ratio is None:
        return f"{text}\n[{figure(cost['low'], row['unit'])}, {figure(cost['high'], row['unit'])}]"
    return f"{text}\n{ratio['median']:.3g}x [{ratio['low']:.3g}, {ratio['high']:.3g}]"


def _targets(row: dict[str, Any]) -> list[tuple[str, str, Text]]:
    unit = row["unit"]
    return [
        (
            target_text(target, unit),
            measured_text(target, unit),
            Text(target["verdict"], style=_STYLES.get(target["verdict"], "yellow")),
        )
        for target in row["targets"]
    ]


def _remarks(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"{row['what']}: {row['note']}" for row in rows if row["note"]]
    for kind in ("failed", "missing"):
        for row in rows:
            lines += [f"{kind}: {name}: {_last(why)}" for name, why in row[kind].items()]
    return list(dict.fromkeys(lines))


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return next((line for line in reversed(lines) if not line.startswith(" ")), lines[-1])  # the error of a traceback


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 220)
