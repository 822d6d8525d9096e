"""The commands `jitserver arrays ls|rm`."""

import time

import click
import msgspec

from jitclient.wire.messages import Verb
from jitclient.wire.named_arrays import Forget, Holdings, KeptInfo
from jitserver.cli.common import ago, ask, client_process, json_option, print_table, report, seconds, size


@click.group()
def arrays() -> None:
    """List and remove the arrays on the daemon."""


@arrays.command("ls")
@click.option(
    "--by",
    type=click.Choice(["program", "line"]),
    help="List what made the arrays that programs hold: each compiled program, or the line of each jitted function.",
)
@json_option
def list_arrays(by: str | None) -> None:
    """List the named arrays and the sessions that hold arrays, the largest first."""
    found: Holdings = ask(Verb.ARRAYS, None, Holdings)
    if by is None:
        report(found, lambda: _print(found))
    else:
        made = _made(found, by)
        report(made, lambda: _print_made(made))


@arrays.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@json_option
def rm(names: tuple[str, ...]) -> None:
    """Remove the arrays under each NAME.

    Handles that programs hold on them stay valid. The arrays of a session are freed when its program deletes them or
    exits.
    """
    gone = [one for name in names for one in ask(Verb.FORGET, Forget(name), list[KeptInfo])]
    missing = sorted(set(names) - {one.name for one in gone})
    if gone:
        removed = [one.name for one in gone]
        report(removed, lambda: click.echo(f"removed {', '.join(removed)}: {size(sum(one.nbytes for one in gone))}"))
    if missing:
        raise click.ClickException(f"no arrays are kept as {', '.join(map(repr, missing))}")


class _Made(msgspec.Struct):
    """Arrays that one function made and that one process holds."""

    made_by: str
    defined_at: str
    pid: int
    held_by: str
    arrays: int
    nbytes: int


def _made(found: Holdings, by: str) -> list[_Made]:
    rows: dict[tuple[str, str, int], _Made] = {}
    for owner in found.sessions:
        for one in owner.made:
            name = one.label.partition("(")[0] if by == "line" and one.where else one.label
            row = _Made(name, one.where, owner.pid, owner.program, one.arrays, one.nbytes)
            before = rows.setdefault((name, one.where, owner.pid), row)
            if before is not row:
                before.arrays, before.nbytes = before.arrays + row.arrays, before.nbytes + row.nbytes
    return sorted(rows.values(), key=lambda row: -row.nbytes)


def _print_made(made: list[_Made]) -> None:
    rows = [
        [one.made_by, one.defined_at, client_process(one.pid), one.held_by, str(one.arrays), size(one.nbytes)]
        for one in made
    ]
    if rows:
        print_table(["made by", "defined at", "held by pid", "program", "arrays", "bytes"], rows)
    else:
        click.echo("no program holds arrays")


def _print(found: Holdings) -> None:
    now = time.time()
    present = [one for one in found.kept if not one.why_lost]
    kept = [[one.name, one.label, str(one.arrays), size(one.nbytes), *_times(one, now)] for one in present]
    lost = [[one.name, one.label, one.why_lost] for one in found.kept if one.why_lost]
    held = [
        [client_process(one.pid), one.program, str(one.arrays), size(one.nbytes)]
        for one in found.sessions
        if one.arrays
    ]
    if kept:
        print_table(["kept as", "tree", "arrays", "bytes", "age", "last used", "time left"], kept)
    if lost:
        print_table(["lost", "tree", "why"], lost)
    if held:
        print_table(["held by pid", "program", "arrays", "bytes"], held)
    for memory in found.memories:
        click.echo(f"{size(memory.nbytes)} of {size(memory.most_nbytes)} in use {memory.where}")
    limit = f" of {size(found.most_nbytes)}" if found.most_nbytes is not None else ""
    disk = f", {size(found.disk_nbytes)} on the disk" if found.disk_nbytes else ""
    click.echo(f"{size(found.nbytes)}{limit} in use{disk}")


def _times(one: KeptInfo, now: float) -> list[str]:
    left = "for ever" if one.ttl is None else seconds(max(0.0, one.last_used + one.ttl - now))
    return [seconds(max(0.0, now - one.created)), ago(one.last_used), left]
