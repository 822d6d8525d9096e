"""Access of commands to the cached programs: from the daemon, or from disk if no daemon is running."""

from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from jitclient.core.directories import compilations_directory, existing_directories, usage
from jitclient.errors import DaemonUnavailable, JitserverError
from jitclient.wire.introspection import EntryInfo, Listed, Match, Status
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask

Found = TypeVar("Found")

_MAX_COMPLETIONS = 50
_SHORT = 12


def entries(prefix: str) -> list[EntryInfo]:
    """Return the programs whose key starts with `prefix`, or whose function has that name; all if it is empty.

    Raises:
        DaemonUnavailable: no daemon is running, and no program is on disk.
    """
    try:
        return listed(prefix)
    except DaemonUnavailable:
        from jitserver.store import offline  # not needed if a daemon answers

        found = offline.infos(prefix)
        if not found and not offline.infos():
            raise
        return found


def compilations() -> tuple[int, int]:
    """Return the number of compilations on the disk that jax itself made, and their bytes."""
    try:
        status: Status = ask(Verb.STATUS, None, Status)
        return status.compilations, status.compilation_bytes
    except DaemonUnavailable:
        found = [usage(compilations_directory(directory)) for directory in existing_directories()]
        return sum(files for files, _ in found), sum(nbytes for _, nbytes in found)


def matching(prefix: str) -> list[EntryInfo]:
    """Return the same programs; exit with status 1 if there are none."""
    check(prefix)
    return not_empty(entries(prefix), prefix)


def check(prefix: str) -> None:
    """Raise UsageError for an empty KEY, which would match all programs."""
    if not prefix:
        raise click.UsageError("KEY must not be empty")


def not_empty(found: list[Found], prefix: str) -> list[Found]:
    """Return the programs found for a KEY; exit with status 1 if there are none."""
    if not found:
        raise click.ClickException(f"no cached program has a key that starts with {prefix!r}, or that name")
    return found


def newest(prefix: str) -> EntryInfo:
    """Return the most recently made of the programs for a KEY."""
    return max(matching(prefix), key=lambda entry: entry.created)


def listed(prefix: str) -> list[EntryInfo]:
    """Return the daemon's programs, requested in as many messages as they need."""
    found: list[EntryInfo] = []
    while True:
        part: Listed = ask(Verb.ENTRIES, Match(prefix, found[-1].key if found else ""), Listed)
        found += part.found
        if not part.more:
            return found


def short(entry: EntryInfo) -> str:
    """Return the beginning of a program's key, long enough to identify the program."""
    return entry.key[:_SHORT]


def complete_key(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions of KEY: names of functions and, after the first character, keys."""
    try:
        found = entries("")
    except JitserverError:
        return []
    names = {entry.name: entry.where for entry in found if entry.name.startswith(incomplete)}
    keys = {short(entry): entry.label for entry in found if incomplete and entry.key.startswith(incomplete)}
    return [CompletionItem(value, help=text) for value, text in {**names, **keys}.items()][:_MAX_COMPLETIONS]
