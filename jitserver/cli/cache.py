"""`jitserver cache ls|show|why|rm|clear`."""

import datetime

import click

from jitclient.wire.explaining import Explained, Why
from jitclient.wire.messages import EntryInfo, Match, Verb
from jitserver.cli.common import ago, ask, json_option, print_json, print_table, seconds, size


@click.group()
def cache() -> None:
    """See and manage the cached programs."""


@cache.command("ls")
@json_option
def list_entries(as_json: bool) -> None:
    """List the cached programs, the one used last first."""
    found = _ask(Verb.ENTRIES, "", as_json)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            entry.key[:12],
            entry.label,
            seconds(sum(entry.seconds.values())),
            str(entry.hits),
            seconds(entry.saved),
            ago(entry.last_used),
        ]
        for entry in sorted(found, key=lambda entry: -entry.last_used)
    ]
    print_table("", ["key", "program", "made in", "hits", "saved", "last used"], rows)


@cache.command()
@click.argument("key")
@json_option
def show(key: str, as_json: bool) -> None:
    """Show all that is known of the programs whose key starts with KEY, or whose function has that name."""
    found = _some(Verb.ENTRIES, key, as_json)
    if as_json:
        print_json(found)
        return
    for entry in found:
        print_table("", ["key", entry.key], _details(entry))


@cache.command()
@click.argument("key")
@click.argument("key2", required=False)
@json_option
def why(key: str, key2: str | None, as_json: bool) -> None:
    """Say why a program was made instead of found: where it differs from the nearest one that was there before it.

    With KEY2, say where the two differ. KEY and KEY2 are beginnings of keys, or names of functions; of several
    programs, the one made last is meant.
    """
    wanted, other = _newest(key, as_json), _newest(key2, as_json) if key2 is not None else None
    question = Why(wanted.key, other.key if other is not None else "")
    explained: Explained | None = ask(Verb.WHY, question, Explained | None, as_json)
    if explained is None or explained.found is None:
        raise click.ClickException("one of the programs has gone meanwhile")
    if as_json:
        print_json(explained)
    else:
        click.echo("\n".join(_answer(explained, explained.found)))


@cache.command()
@click.argument("key")
@json_option
def rm(key: str, as_json: bool) -> None:
    """Remove the programs whose key starts with KEY, or whose function has that name."""
    _removed(_some(Verb.REMOVE, key, as_json), as_json)


@cache.command()
@json_option
def clear(as_json: bool) -> None:
    """Remove all programs."""
    _removed(_ask(Verb.REMOVE, "", as_json), as_json)


def _newest(prefix: str, as_json: bool) -> EntryInfo:
    return max(_some(Verb.ENTRIES, prefix, as_json), key=lambda entry: entry.created)


def _answer(explained: Explained, entry: EntryInfo) -> list[str]:
    lines = [f"{_short(entry)}, made in {seconds(sum(entry.seconds.values()))}"]
    if explained.nearest is None:
        return [*lines, "is the only program of that name"]
    lines.append(f"differs from {_short(explained.nearest)} in")
    return lines + ([f"  {difference}" for difference in explained.differences] or ["  nothing"])


def _short(entry: EntryInfo) -> str:
    return f"{entry.label} {entry.key[:12]}"


def _ask(verb: Verb, prefix: str, as_json: bool) -> list[EntryInfo]:
    found: list[EntryInfo] = ask(verb, Match(prefix), list[EntryInfo], as_json)
    return found


def _some(verb: Verb, prefix: str, as_json: bool) -> list[EntryInfo]:
    if not prefix:
        raise click.UsageError("KEY must not be empty")
    found = _ask(verb, prefix, as_json)
    if not found:
        raise click.ClickException(f"no cached program has a key that starts with {prefix!r}, or that name")
    return found


def _removed(entries: list[EntryInfo], as_json: bool) -> None:
    if as_json:
        print_json([entry.key for entry in entries])
    else:
        click.echo(f"removed {len(entries)} program{'' if len(entries) == 1 else 's'}")


def _details(entry: EntryInfo) -> list[list[str]]:
    created = datetime.datetime.fromtimestamp(entry.created).isoformat(" ", "seconds")
    return [
        ["program", entry.signature],
        ["function", f"{entry.name}, {entry.where}"],
        ["function key", entry.function_key],
        ["options", entry.options or "none"],
        ["context", ", ".join(f"{name} {value}" for name, value in entry.context.items() if value)],
        ["made", f"{created}: " + ", ".join(f"{name} {seconds(value)}" for name, value in entry.seconds.items())],
        ["used", f"{entry.hits} hits, {seconds(entry.saved)} saved, last {ago(entry.last_used)}"],
        ["machine code", size(entry.code_bytes)],
    ]
