"""`python -m benchmarks [NAME ...]`: runs the benchmarks with those names, or all."""

import importlib
import json
import sys
from types import ModuleType

import click

NAMES = ("conformance",)
"""Each is a module beside this one, with `run() -> dict` (plain data) and `show(result)` (for people); one that can
fail has `holds(result) -> bool` too.
"""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object instead of tables.")
def main(names: tuple[str, ...], as_json: bool) -> None:
    """Run the benchmarks NAMES, or all: each prints a table, with what it was compared with beside it."""
    results, failed = {}, []
    for name in names or NAMES:
        benchmark: ModuleType = importlib.import_module(f"benchmarks.{name}")
        results[name] = benchmark.run()
        if not as_json:
            benchmark.show(results[name])
        failed += [] if getattr(benchmark, "holds", lambda _: True)(results[name]) else [name]
    if as_json:
        click.echo(json.dumps(results, indent=1))
    sys.exit(bool(failed))


main(prog_name="python -m benchmarks")
