"""Words of the commands that run a program as `jitserver run` does."""

import os
from collections.abc import Sequence

import click

from jitserver.run import front
from jitserver.run.request import Command


def parsed(words: Sequence[str]) -> Command:
    """Return the program that the words of a command line name, with its options.

    Raises:
        click.UsageError: an option is unknown, or there is no program.
    """
    command = front.parsed(words)
    problem = front.problem_of_report(words)
    if command is None and problem:
        raise click.UsageError(f"{problem}.")
    if command is None:
        known = (*front.OPTIONS, "-m")
        # The name of a package, which belongs to an option, is none.
        unknown = next((word for word in words if word.startswith("-") and word not in known), None)
        if unknown is not None:
            raise click.NoSuchOption(unknown)
        raise click.UsageError("There is no program to run.")
    return command


def existing(words: Sequence[str]) -> Command:
    """Return the same, if its file exists; a module is looked up by the run.

    Raises:
        click.UsageError: as above, or there is no such file.
    """
    command = parsed(words)
    if not command.is_module and not os.path.exists(command.name):
        raise click.UsageError(f"There is no program {command.name!r}.")
    return command
