"""The commands `jitserver arrays ls|rm`."""

import time

import click

from jitclient.wire.messages import Verb
from jitclient.wire.named_arrays import Forget, Holdings, KeptInfo
from jitserver.cli.common import ago, ask, client_process, json_option, print_table, report, seconds, size


@click.group()
def arrays() -> None:
    """List and remove the arrays on the daemon."""


@arrays.command("ls")
@json_option
def list_arrays() -> None:
    """List the named arrays and the sessions that hold arrays, the largest first."""
    found: Holdings = ask(Verb.ARRAYS, None, Holdings)
    report(found, lambda: _print(found))


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
