"""`python -m benchmarks faults`: failures of all kinds, and what comes of them."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.faults.attack import attack
from benchmarks.faults.devices import PAUSE_SECONDS as PAUSE
from benchmarks.faults.devices import devices
from benchmarks.faults.flips import flips
from benchmarks.faults.result import Result
from benchmarks.faults.shim import CALLS
from benchmarks.faults.signals import signals
from benchmarks.faults.soak import soak
from benchmarks.faults.sweep import ALL, sweep
from benchmarks.processes import temporary_folder

PARTS = ("sweep", "signals", "flips", "attack", "soak")
DEVICES = "devices"


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice((*PARTS, DEVICES)))
@click.option("--call", "calls", multiple=True, type=click.Choice(list(CALLS)), help="Fail only this kind of call.")
@click.option("--quick", is_flag=True, help="A few failures of each kind.")
@click.option("--minutes", default=30.0, show_default=True, help=f"Duration of 'soak' and of {DEVICES!r}.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object instead of a table.")
def main(parts: tuple[str, ...], calls: tuple[str, ...], quick: bool, minutes: float, as_json: bool) -> None:
    """Fail calls, kill and stop daemons, flip bits, attack with messages and watch what grows, in all PARTS or some.

    The part `devices` is not among the PARTS that run by default: it breaks an accelerator that must be installed.

    Exit status: 1 if a call hung or was held up, a value was wrong, an error was none of jitserver's, an attack took
    much memory, or a quantity of the soak rose.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # every process of ours ends with us
    kinds = calls or (("open", "mmap", "connect", "recvmsg") if quick else tuple(CALLS))
    every: dict[str, Callable[[Path], Iterator[Result]]] = {
        "sweep": lambda folder: sweep(folder, *((60, 2) if quick else (1, ALL)), kinds),
        "signals": lambda folder: signals(folder, 2 if quick else 50),
        "flips": lambda folder: flips(folder, 2 if quick else 1000),
        "attack": attack,
        "soak": lambda folder: soak(folder, 0 if quick else minutes, lambda text: click.echo(text, err=as_json)),
        DEVICES: lambda folder: devices(folder, *((2, 0) if quick else (int(minutes * 60 / PAUSE), PAUSE))),
    }
    results = []
    for part in parts or PARTS:
        with temporary_folder() as folder:
            for result in every[part](folder):
                results.append(result)
                if not as_json:
                    click.echo(f"{result.name}: {result.injections} injections" + "".join(_lines(result)))
    if as_json:
        click.echo(json.dumps([_facts(result) for result in results], indent=1))
    else:
        _show(results)
    sys.exit(not all(result.holds for result in results))


def _lines(result: Result) -> Iterator[str]:
    figures = [f"{name}: {value:.2f}" for name, value in result.figures.items()]
    return (f"\n    {line}" for line in [*figures, *result.details])


def _facts(result: Result) -> dict[str, object]:
    counts = {name: getattr(result, name) for name in ("name", "injections", "hangs", "wrong", "raw", "figures")}
    return {**counts, "p50": result.quantile(0.5), "p99": result.quantile(0.99), "details": result.details}


def _show(results: list[Result]) -> None:
    columns = ("injections", "hangs", "wrong", "raw errors", "next good answer p50, p99")
    table = Table("failures", *columns, title="faults")
    for result in results:
        p50, p99 = result.quantile(0.5), result.quantile(0.99)
        good = f"{p50:.2f} s, {p99:.2f} s" if p50 is not None and p99 is not None else ""
        table.add_row(result.name, *map(str, (result.injections, result.hangs, result.wrong, result.raw)), good)
    Console().print(table)
