"""`python -m benchmarks programs [FOLDER ...]`: tries the public programs of the list, or those of folders."""

import dataclasses
import json
import signal
import sys
from pathlib import Path

import click

from benchmarks import table
from benchmarks.corpus import listing, shown
from benchmarks.corpus.trial import verdict_on
from benchmarks.machine import machine

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("folders", nargs=-1, type=_FOLDER)
@click.option("--only", multiple=True, metavar="NAME", help="Try only this program; may be given several times.")
@click.option("--mirrors", type=_FOLDER, help="Take repositories from git mirrors, FOLDER/OWNER/NAME, not from GitHub.")
@click.option("--libraries", multiple=True, type=_FOLDER, help="A folder of packages that programs need.")
@click.option("--preloaded", is_flag=True, help="Run them with `jitserver run`, in place of `python -m jitclient`.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object instead of a table.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write that JSON to a file as well.")
def main(
    folders: tuple[Path, ...],
    only: tuple[str, ...],
    mirrors: Path | None,
    libraries: tuple[Path, ...],
    preloaded: bool,
    as_json: bool,
    save: Path | None,
) -> None:
    """Run each program as plain JAX, then served in two fresh processes, and compare.

    Without FOLDERS these are public programs, which are fetched. Exit status: 1 if one of them is not right.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # every process of ours ends with us
    programs = [each for folder in folders for each in listing.in_folder(folder)] if folders else listing.public()
    chosen = [each for each in programs if each.name in only or not only]
    if unknown := set(only) - {each.name for each in chosen}:
        raise click.UsageError(f"no such program: {', '.join(sorted(unknown))}")
    where = machine()
    if not as_json:
        table.show_machine(where)
    verdicts = []
    for program in chosen:
        verdicts.append(verdict_on(program, mirrors, libraries, preloaded))
        text = json.dumps({"machine": where, "programs": list(map(dataclasses.asdict, verdicts))}, indent=1)
        if save is not None:
            save.write_text(text)  # after each, so that an interrupted run has not run in vain
        if not as_json:
            shown.tell(verdicts[-1])
    if as_json:
        click.echo(text)
    else:
        shown.show(verdicts)
    sys.exit(not all(each.right for each in verdicts))
