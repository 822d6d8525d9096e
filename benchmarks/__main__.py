"""`python -m benchmarks [NAME ...]`: runs the benchmarks with those names, or all."""

import importlib
import json
import signal
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks import scenarios, table
from benchmarks.machine import machine
from benchmarks.measure import Effort

CONFORMANCE = "conformance"
NAMES = (*scenarios.NAMES, CONFORMANCE)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object instead of tables.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write that JSON to a file as well.")
@click.option("--quick", is_flag=True, help="Tiny sizes: shows that everything runs; the figures mean nothing.")
def main(names: tuple[str, ...], as_json: bool, save: Path | None, quick: bool) -> None:
    """Run the benchmarks NAMES, or all: each prints a table, with what it was compared with beside it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # every process of ours ends with us
    where = machine()
    if not as_json:
        table.show_machine(where)
    results: dict[str, Any] = {}
    for name in names or NAMES:
        results[name] = _conformance(as_json) if name == CONFORMANCE else _scenario(name, Effort(quick), as_json)
        text = json.dumps({"machine": where, "quick": quick, "results": results}, indent=1)
        if save is not None:
            save.write_text(text)  # after each, so that an interrupted run has not run in vain
    if as_json:
        click.echo(text)


def _scenario(name: str, effort: Effort, as_json: bool) -> dict[str, Any]:
    rows = [row.result() for row in importlib.import_module(f"benchmarks.scenarios.{name}").rows(effort)]
    if not as_json:
        table.show(name, rows)
    return {"rows": rows}


def _conformance(as_json: bool) -> dict[str, Any]:
    from benchmarks import conformance  # compares with jax in this process, so it imports it

    result = conformance.run()
    if not as_json:
        conformance.show(result)
    return result


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
