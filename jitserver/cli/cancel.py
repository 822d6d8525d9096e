"""`jitserver cancel`."""

import sys

import click

from jitclient.wire.introspection import Running, Snapshot, Top
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, json_option, print_table, report
from jitserver.cli.picture import RUNNING_COLUMNS, running_row

_ADVICE = """\
A program that runs on a device cannot be interrupted. A client that is interrupted (Ctrl-C) or killed stops waiting for
it, and the program goes on. `jitserver restart` ends all of them: at once those that no client waits for, the others
after `--drain` seconds. Other clients keep their arrays."""


@click.command()
@json_option
def cancel() -> None:
    """Show the calls that take long, and say how to end them.

    The exit status is 1 if there are any: this command ends none.
    """
    found: Snapshot = ask(Verb.TOP, Top(), Snapshot)
    report({"running_calls": found.running, "advice": _ADVICE if found.running else ""}, lambda: _print(found.running))
    sys.exit(bool(found.running))


def _print(running: list[Running]) -> None:
    if not running:
        click.echo("no call has been running for long")
        return
    print_table(RUNNING_COLUMNS, [running_row(one) for one in running])
    click.echo(f"\n{_ADVICE}")
