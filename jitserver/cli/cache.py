"""The commands `jitserver cache ls|rm|clear|pin|unpin|gc`; `show` and `why` are in show.py, `copy` in copy.py."""

import fnmatch
from collections.abc import Callable

import click

from jitclient.wire.introspection import EntryInfo, Match, Pin
from jitclient.wire.messages import Verb
from jitserver.cli.common import ago, ask, json_option, print_table, report, seconds, size, wants_json
from jitserver.cli.copy import copy_cache
from jitserver.cli.entries import check, compilations, complete_key, entries, not_empty, short
from jitserver.cli.show import show, why

_MAX_ROWS = 50

_ORDERS: dict[str, Callable[[EntryInfo], float]] = {
    "saved": lambda entry: entry.saved,
    "size": lambda entry: entry.disk_bytes or entry.code_bytes,
    "hits": lambda entry: entry.hits,
    "last": lambda entry: entry.last_used,
}


@click.group()
def cache() -> None:
    """See and manage the cached programs.

    KEY is the beginning of a key, or the name of a function, which means all its programs. If no daemon is running,
    `ls`, `show` and `why` read the cache on the disk.
    """


cache.add_command(show)
cache.add_command(why)
cache.add_command(copy_cache)


@cache.command("ls")
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    default="last",
    show_default=True,
    help="Order: most time saved, largest, most hits, or most recently used first.",
)
@click.option("--match", metavar="GLOB", help="Only programs whose function or label matches, such as 'step*'.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Show at most N; 0: all. [default: {_MAX_ROWS}; with --json: all]",
)
@json_option
def list_entries(sort: str, match: str | None, limit: int | None) -> None:
    """List the cached programs."""
    found = sorted(entries(""), key=_ORDERS[sort], reverse=True)
    if match is not None:
        found = [entry for entry in found if _matches(entry, match)]
    rows = limit or len(found) if limit is not None or wants_json() else _MAX_ROWS
    report(found[:rows], lambda: _print(found[:rows], len(found[rows:]), compilations()))


@cache.command()
@click.argument("key", shell_complete=complete_key)
@json_option
def rm(key: str) -> None:
    """Remove the programs of KEY."""
    check(key)
    _report_done("removed", not_empty(ask(Verb.REMOVE, Match(key), list[str]), key))


@cache.command()
@json_option
def clear() -> None:
    """Remove all programs, including pinned ones, and the compilations of jax's own."""
    _report_done("removed", ask(Verb.REMOVE, Match(""), list[str]))


@cache.command()
@click.argument("key", shell_complete=complete_key)
@json_option
def pin(key: str) -> None:
    """Keep the programs of KEY in the cache, even when it is full."""
    _pin(key, True)


@cache.command()
@click.argument("key", shell_complete=complete_key)
@json_option
def unpin(key: str) -> None:
    """Allow the programs of KEY to be evicted again."""
    _pin(key, False)


@cache.command()
@json_option
def gc() -> None:
    """Delete programs and compilations over the limits of the cache, and files that belong to no program.

    The limit on the disk holds for the caches of all environments together.
    """
    freed: int = ask(Verb.COLLECT, None, int)
    report({"freed_bytes": freed}, lambda: click.echo(f"freed {size(freed)}"))


def _pin(key: str, pinned: bool) -> None:
    check(key)
    _report_done("pinned" if pinned else "unpinned", not_empty(ask(Verb.PIN, Pin(key, pinned), list[str]), key))


def _report_done(what: str, keys: list[str]) -> None:
    report(keys, lambda: click.echo(f"{what} {len(keys)} program{'' if len(keys) == 1 else 's'}"))


def _print(found: list[EntryInfo], more: int, compiled: tuple[int, int]) -> None:
    print_table(["key", "program", "made in", "hits", "saved", "size", "last used", ""], list(map(_row, found)))
    if more:
        click.echo(f"and {more:,} more: show them with --limit N, or select some with --match GLOB")
    files, nbytes = compiled
    if files:
        click.echo(f"and {files:,} compilations of jax's own ({size(nbytes)})")


def _matches(entry: EntryInfo, glob: str) -> bool:
    return fnmatch.fnmatchcase(entry.name, glob) or fnmatch.fnmatchcase(entry.label, glob)


def _row(entry: EntryInfo) -> list[str]:
    return [
        short(entry),
        entry.label,
        seconds(sum(entry.seconds.values())),
        str(entry.hits),
        seconds(entry.saved),
        size(_ORDERS["size"](entry)),
        ago(entry.last_used),
        ", ".join(["pinned"] * entry.pinned + ["no executable"] * bool(entry.no_executable)),
    ]
