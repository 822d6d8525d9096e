"""The command `jitserver watch`: runs a program again whenever a file that it uses is saved.

The command has no `--json`, because all output belongs to the program.
"""

import sys

import click

from jitserver.cli.programs import existing
from jitserver.run import front

_DEBOUNCE_MS = 200


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--debounce MS] [OPTIONS OF RUN]",
)
@click.option(
    "--debounce",
    type=click.IntRange(min=1, max=60_000),
    default=_DEBOUNCE_MS,
    show_default=True,
    metavar="MS",
    help="Wait for this many milliseconds without a further change after a file was saved.",
)
@click.argument("words", metavar="(script.py | script | -m module) [argument ...]", nargs=-1, type=click.UNPROCESSED)
def watch(debounce: int, words: tuple[str, ...]) -> None:
    """Run a program as `jitserver run` does, and again whenever a file that it uses is saved.

    The files are the script and your own modules that it imports. A run that has not ended is interrupted first, as by
    Ctrl-C. Before each further run, a line says what changed. Ctrl-C ends the program and this command.
    """
    from jitserver.runner.watching import Watch  # imported here, because it imports the store

    command = existing(words)
    status = Watch(words, "" if command.is_module else command.name, debounce).run()
    sys.stdout.flush()
    if status < 0:
        front.exit_as(-status)
    sys.exit(status)
