"""`python -m benchmarks.corpus.page SAVED ...`: saved runs of the corpus as a table for the documentation."""

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.corpus import listing
from benchmarks.corpus.shown import word
from benchmarks.corpus.trial import Verdict

_HEAD = (
    "| program | kind | lines | verdict | plain | JAX's cache | first | second "
    "| compiled in the client, plain and second |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
_HEAD_OF_COMMANDS = (
    "| program | verdict | `python` | JAX's cache | `jitserver run`, first | second "
    "| why it runs in a fresh process |\n"
    "|---|---|---|---|---|---|---|"
)


@click.command()
@click.argument("saved", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--commands", is_flag=True, help="Show the times of whole commands, for runs with --preloaded.")
def main(saved: tuple[Path, ...], commands: bool) -> None:
    """Print one table of all programs in SAVED, in the order of the list; of two verdicts on a program, the later."""
    verdicts = {
        fields["name"]: Verdict(**fields) for path in saved for fields in json.loads(path.read_text())["programs"]
    }
    names = [*(each.name for each in listing.public() if each.name in verdicts), *sorted(verdicts)]
    click.echo(_HEAD_OF_COMMANDS if commands else _HEAD)
    for name in dict.fromkeys(names):
        cells = _of_commands(verdicts[name]) if commands else _of_programs(verdicts[name])
        click.echo(f"| {' | '.join(cells)} |")


def _of_programs(verdict: Verdict) -> list[str]:
    compiled = ", ".join(_seconds(verdict.compiled_here, "plain", "second"))
    cells = [verdict.name, verdict.kind, str(verdict.lines), word(verdict)]
    return [*cells, *_seconds(verdict.seconds, "plain", "cached", "first", "second"), compiled]


def _of_commands(verdict: Verdict) -> list[str]:
    times = _seconds(verdict.command_seconds, "plain", "cached", "first", "second")
    return [verdict.name, word(verdict), *times, "; ".join(verdict.fresh)]


def _seconds(of: dict[str, Any], *names: str) -> list[str]:
    return [f"{of[name]:.1f} s" if of else "" for name in names]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.corpus.page")
