"""`python -m benchmarks.corpus.page SAVED ...`: saved runs of the corpus as a table for the documentation."""

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.corpus import listing
from benchmarks.corpus.shown import word
from benchmarks.corpus.trial import Verdict

_HEAD = (
    "| program | kind | lines | verdict | plain | first | second | compiled in the client, plain and second |\n"
    "|---|---|---|---|---|---|---|---|"
)


@click.command()
@click.argument("saved", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(saved: tuple[Path, ...]) -> None:
    """Print one table of all programs in SAVED, in the order of the list; of two verdicts on a program, the later."""
    verdicts = {
        fields["name"]: Verdict(**fields) for path in saved for fields in json.loads(path.read_text())["programs"]
    }
    names = [*(each.name for each in listing.public() if each.name in verdicts), *sorted(verdicts)]
    click.echo(_HEAD)
    for name in dict.fromkeys(names):
        click.echo(_line(verdicts[name]))


def _line(verdict: Verdict) -> str:
    def seconds(of: dict[str, Any], *names: str) -> list[str]:
        return [f"{of[name]:.1f} s" if of else "" for name in names]

    compiled = ", ".join(seconds(verdict.compiled_here, "plain", "second"))
    cells = [verdict.name, verdict.kind, str(verdict.lines), word(verdict)]
    return f"| {' | '.join([*cells, *seconds(verdict.seconds, 'plain', 'first', 'second'), compiled])} |"


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.corpus.page")
