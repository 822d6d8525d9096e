"""`jitserver cache ls|rm|clear|pin|unpin|gc`; its `show` and `why` are in a file of their own."""

import fnmatch
from collections.abc import Callable

import click

from jitclient.wire.introspection import Pin
from jitclient.wire.messages import EntryInfo, Match, Verb
from jitserver.cli.common import ago, ask, json_option, print_table, report, seconds, size, wants_json
from jitserver.cli.entries import check, complete_key, entries, not_empty, short
from jitserver.cli.show import show, why

_MOST_ROWS = 50

_ORDERS: dict[str, Callable[[EntryInfo], float]] = {
    "saved": lambda entry: entry.saved,
    "size": lambda entry: entry.disk_bytes or entry.code_bytes,
    "hits": lambda entry: entry.hits,
    "last": lambda entry: entry.last_used,
}


@click.group()
def cache() -> None:
    """See and manage the cached programs.

    KEY is the beginning of a key, or the name of a function: of all its programs. `ls`, `show` and `why` also tell what
    is on the disk while no daemon runs.
    """


cache.add_command(show)
cache.add_command(why)


@cache.command("ls")
@click.option(
    "--sort",
    type=click.Choice(list(_ORDERS)),
    default="last",
    show_default=True,
    help="What comes first: most time saved, largest, most hits, or used last.",
)
@click.option("--match", metavar="GLOB", help="Only those whose function or label matches, as in 'step*'.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"So many at most; 0: all. [default: {_MOST_ROWS}; with --json: all]",
)
@json_option
def list_entries(sort: str, match: str | None, limit: int | None) -> None:
    """List the cached programs."""
    found = sorted(entries(""), key=_ORDERS[sort], reverse=True)
    if match is not None:
        found = [entry for entry in found if _matches(entry, match)]
    most = limit or len(found) if limit is not None or wants_json() else _MOST_ROWS
    report(found[:most], lambda: _print(found[:most], len(found) - most))


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
    """Remove all programs, pinned ones too."""
    _report_done("removed", ask(Verb.REMOVE, Match(""), list[str]))


@cache.command()
@click.argument("key", shell_complete=complete_key)
@json_option
def pin(key: str) -> None:
    """Have the programs of KEY stay in the cache, whatever it lacks room for."""
    _pin(key, True)


@cache.command()
@click.argument("key", shell_complete=complete_key)
@json_option
def unpin(key: str) -> None:
    """Let the programs of KEY go again when there is no room for them."""
    _pin(key, False)


@cache.command()
@json_option
def gc() -> None:
    """Delete what the cache needs no longer: what is over its bounds, and files that no program has."""
    freed: int = ask(Verb.COLLECT, None, int)
    report({"freed_bytes": freed}, lambda: click.echo(f"freed {size(freed)}"))


def _pin(key: str, pinned: bool) -> None:
    check(key)
    _report_done("pinned" if pinned else "unpinned", not_empty(ask(Verb.PIN, Pin(key, pinned), list[str]), key))


def _report_done(what: str, keys: list[str]) -> None:
    report(keys, lambda: click.echo(f"{what} {len(keys)} program{'' if len(keys) == 1 else 's'}"))


def _print(found: list[EntryInfo], more: int) -> None:
    print_table(["key", "program", "made in", "hits", "saved", "size", "last used", ""], list(map(_row, found)))
    if more:
        click.echo(f"and {more:,} more: --limit N shows as many, --match GLOB those that you mean")


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
        "pinned" if entry.pinned else "",
    ]
