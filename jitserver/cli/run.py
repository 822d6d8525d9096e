"""The command `jitserver run`: this module handles its help, its usage errors, and the group options before it.

The command has no `--json`, because all output belongs to the program.
"""

import sys
from collections.abc import Sequence

import click

from jitclient.errors import SettingsError
from jitserver.run import front
from jitserver.run.request import Command


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--no-jit] [--package NAME ...] [--report[=FORM]] [--fresh] [-v]",
)
@click.option("--no-jit", is_flag=True, help="Do not route jax.jit to the daemon.")
@click.option("--package", "packages", multiple=True, metavar="NAME", help="Also route the jits of this package.")
# For the help only: click cannot parse an option whose value is optional and attached to it.
@click.option(
    "--report[=FORM]",
    "_",
    is_flag=True,
    expose_value=False,
    help="At the exit, print which programs were used, and what ran in this process. FORM is json, or a file to write: "
    "a page (.html), or a trace for Perfetto (.json); or lines, for a line as each program is first used; or off.",
)
@click.option("--fresh", is_flag=True, help="Run the program in a fresh process.")
@click.option(front.FRESH_REASON.rstrip("="), "reason", hidden=True)
@click.option(front.FILES.rstrip("="), "files", hidden=True)
@click.option(
    "--verbose",
    "-v",
    is_flag=True,
    help="Print why the program runs in a fresh process, if it does, and a line for each jitted program.",
)
@click.argument("words", metavar="(script.py | script | -m module) [argument ...]", nargs=-1, type=click.UNPROCESSED)
def run(
    no_jit: bool,
    packages: tuple[str, ...],
    fresh: bool,
    reason: str | None,
    files: str | None,
    verbose: bool,
    words: tuple[str, ...],
) -> None:
    """Run a program, unchanged, with its jits on the daemon.

    The program starts in a process that has already imported the modules that your programs use. Otherwise it behaves
    as with `python`.
    """
    given = {"--no-jit": no_jit, "--fresh": fresh, "--verbose": verbose}
    options = [option for option, is_given in given.items() if is_given]
    options += [f"{front.FRESH_REASON}{reason}"] if reason is not None else []
    options += [f"{front.FILES}{files}"] if files is not None else []
    options += [word for name in packages for word in ("--package", name)]
    command = parsed([*options, *words])
    sys.stdout.flush()
    front.run(command)


def parsed(words: Sequence[str]) -> Command:
    """Return the program that the words of a command line name, with its options.

    Raises:
        click.UsageError: an option is unknown, or there is no program.
    """
    try:
        command = front.parsed(words)
    except SettingsError as error:
        raise click.UsageError(f"{error}.") from None
    if command is None:
        known = (*front.OPTIONS, "-m")
        # The name of a package, which belongs to an option, is none.
        unknown = next((word for word in words if word.startswith("-") and word not in known), None)
        if unknown is not None:
            raise click.NoSuchOption(unknown)
        raise click.UsageError("There is no program to run.")
    return command
