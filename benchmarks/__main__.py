"""`python -m benchmarks [NAME ...]`: runs the benchmarks, all by default; `programs` and `faults` have options."""

import functools
import importlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks import processes, scenarios, table
from benchmarks.corpus.command import main as programs
from benchmarks.faults.command import main as faults
from benchmarks.machine import machine
from benchmarks.measure import Effort
from benchmarks.result import OURS

CONFORMANCE, GPU = "conformance", "gpu"
NAMES = (*scenarios.NAMES, CONFORMANCE)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object instead of tables.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write that JSON to a file as well.")
@click.option("--quick", is_flag=True, help="Tiny sizes: shows that everything runs; the figures mean nothing.")
def main(names: tuple[str, ...], as_json: bool, save: Path | None, quick: bool) -> None:
    """Run the benchmarks NAMES, or all: each prints a table, with what it was compared with beside it.

    Exit status: 1 if jitserver failed in one of them; a target that is missed is no failure.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # every process of ours ends with us
    where = machine(processes.platform_of_jax()) if names == (GPU,) else machine()
    if not as_json:
        table.show_machine(where)
    results: dict[str, Any] = {}

    def text() -> str:
        return json.dumps({"machine": where, "quick": quick, "results": results}, indent=1)

    def keep(name: str, result: dict[str, Any]) -> None:
        results[name] = result
        if save is not None:
            save.write_text(text())  # at once, so that an interrupted run has not run in vain

    worked = True
    for name in names or NAMES:
        run = _conformance if name == CONFORMANCE else functools.partial(_scenario, quick=quick)
        worked &= run(name, keep, as_json)
    if as_json:
        click.echo(text())
    sys.exit(not worked)


Keep = Callable[[str, dict[str, Any]], None]
"""Keeps the results of a scenario, which are more each time."""


def _scenario(name: str, keep: Keep, as_json: bool, quick: bool) -> bool:
    rows = list[dict[str, Any]]()
    for row in importlib.import_module(f"benchmarks.scenarios.{name}").rows(Effort(quick)):
        rows.append(row.result())
        keep(name, {"rows": rows})
        click.echo(f"measured: {row.what}", err=True)  # the table comes when the last row is there, after minutes
    if not as_json:
        table.show(name, rows)
    return not any(OURS in row["failed"] for row in rows)


def _conformance(name: str, keep: Keep, as_json: bool) -> bool:
    from benchmarks import conformance  # compares with jax in this process, so it imports it

    result = conformance.run()
    keep(name, result)
    if not as_json:
        conformance.show(result)
    return conformance.holds(result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["faults"]:
        faults(sys.argv[2:], prog_name="python -m benchmarks faults")
    if sys.argv[1:2] == ["programs"]:
        programs(sys.argv[2:], prog_name="python -m benchmarks programs")
    main(prog_name="python -m benchmarks")
