"""`python -m benchmarks [NAME ...]`: runs the benchmarks, all by default; `programs` and `faults` have options."""

import importlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks import scenarios, table
from benchmarks.corpus.command import main as programs
from benchmarks.faults.command import main as faults
from benchmarks.machine import machine
from benchmarks.measure import Effort
from benchmarks.result import OURS

CONFORMANCE = "conformance"
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
    where = machine()
    if not as_json:
        table.show_machine(where)
    results: dict[str, Any] = {}
    worked = True
    for name in names or NAMES:
        results[name], works = _conformance(as_json) if name == CONFORMANCE else _scenario(name, quick, as_json)
        worked &= works
        text = json.dumps({"machine": where, "quick": quick, "results": results}, indent=1)
        if save is not None:
            save.write_text(text)  # after each, so that an interrupted run has not run in vain
    if as_json:
        click.echo(text)
    sys.exit(not worked)


def _scenario(name: str, quick: bool, as_json: bool) -> tuple[dict[str, Any], bool]:
    rows = [row.result() for row in importlib.import_module(f"benchmarks.scenarios.{name}").rows(Effort(quick))]
    if not as_json:
        table.show(name, rows)
    return {"rows": rows}, not any(OURS in row["failed"] for row in rows)


def _conformance(as_json: bool) -> tuple[dict[str, Any], bool]:
    from benchmarks import conformance  # compares with jax in this process, so it imports it

    result = conformance.run()
    if not as_json:
        conformance.show(result)
    return result, conformance.holds(result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["faults"]:
        faults(sys.argv[2:], prog_name="python -m benchmarks faults")
    if sys.argv[1:2] == ["programs"]:
        programs(sys.argv[2:], prog_name="python -m benchmarks programs")
    main(prog_name="python -m benchmarks")
