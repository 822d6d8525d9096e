"""The commands `jitserver share status|verify|gc`: the cache of programs that the machines of a lab share."""

import collections
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from jitclient.errors import DaemonUnavailable, JitserverError
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, json_option, print_table, report, size, track
from jitserver.cli.status import of_share
from jitserver.store.share import contents
from jitserver.store.share.objects import Objects
from jitserver.store.share.options import LabOptions

_DAY_SECONDS = 86_400.0


@click.group()
def share() -> None:
    """See and manage the lab's cache, of which JITSERVER_SHARE is the URL."""


@share.command()
@json_option
def status() -> None:
    """Show where the lab's cache is, and what it has given to the daemon."""
    options = lab_options()
    with _storage_errors(options):
        found = contents.everything(Objects(options.url))
    try:
        daemon: Status | None = ask(Verb.STATUS, None, Status)
    except DaemonUnavailable:
        daemon = None
    told = {
        "url": options.url,
        "writes": options.writes,
        **{kind: len(each) for kind, each in found.items()},
        "bytes": sum(entry.nbytes for each in found.values() for entry in each),
        "daemon": None if daemon is None or daemon.share is None else msgspec.structs.asdict(daemon.share),
    }
    report(told, lambda: _print_status(options, told, daemon))


def _print_status(options: LabOptions, told: dict[str, Any], daemon: Status | None) -> None:
    rows = [
        ["place", f"{options.url}, {'read and write' if options.writes else 'read only'}"],
        ["programs", f"{told['programs']:,}"],
        ["traces", f"{told['traces']:,}"],
        ["compilations", f"{told['compilations']:,}"],
        ["size", size(told["bytes"])],
        ["the daemon", _of_daemon(options, daemon)],
    ]
    print_table(["the lab's", "cache"], rows)


def _of_daemon(options: LabOptions, daemon: Status | None) -> str:
    if daemon is None:
        return "is not running"
    if daemon.share is None or daemon.share.url != options.url:
        where = "no lab's cache" if daemon.share is None else daemon.share.url
        return f"uses {where}: it was started with other settings. Run `jitserver restart`."
    return of_share(daemon.share)


@share.command()
@click.option("--remove", "removes", is_flag=True, help="Remove the entries that are not valid.")
@json_option
def verify(removes: bool) -> None:
    """Check the signature of each entry, and say who has made how many. The exit status is 1 if one is not valid."""
    options = lab_options()
    by: collections.Counter[str] = collections.Counter()
    problems: dict[str, str] = {}
    with _storage_errors(options):
        objects = Objects(options.url)
        found = [entry for each in contents.everything(objects).values() for entry in each]
        for one in contents.checked(objects, options.key, track(found, "reading")):
            if one.problem:
                problems[one.entry.name] = one.problem
            else:
                by[one.by or "members whom the entries do not name"] += 1
        if removes and not by and problems:
            raise click.ClickException("no entry is valid under this key, which may be wrong; none is removed")
        if removes:
            contents.remove(objects, [entry for entry in found if entry.name in problems])
    report({"valid": dict(by), "problems": problems, "removed": removes}, lambda: _print_verified(by, problems))
    if problems and not removes:
        raise click.ClickException(
            f"{len(problems)} entries are not valid; `jitserver share verify --remove` removes them"
        )


def _print_verified(by: collections.Counter[str], problems: dict[str, str]) -> None:
    for member, times in by.most_common():
        click.echo(f"valid: {times} made by {member}")
    for name, problem in problems.items():
        click.echo(f"not valid ({problem}): {name}")
    if not by and not problems:
        click.echo("nothing there")


@share.command()
@click.option("--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Remove entries that are older.")
@click.option(
    "--max-size",
    type=click.FloatRange(min=0),
    metavar="GIB",
    help="Remove entries beyond it: first those that save the least time for their size and age.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@json_option
def gc(older_than: float | None, max_size: float | None, dry_run: bool) -> None:
    """Remove entries from the lab's cache. Machines keep the copies that they have."""
    if older_than is None and max_size is None:
        raise click.UsageError("say what may go: --older-than DAYS, --max-size GIB, or both")
    options = lab_options()
    before = 0.0 if older_than is None else time.time() - older_than * _DAY_SECONDS
    with _storage_errors(options):
        objects = Objects(options.url)
        limit = None if max_size is None else int(max_size * (1 << 30))
        found = [entry for each in contents.everything(objects).values() for entry in each]
        leaving = [*contents.abandoned(objects), *contents.outdated(objects, found, before, limit)]
        if not dry_run:
            contents.remove(objects, track(leaving, "removing"))
    freed = sum(entry.nbytes for entry in leaving)
    what = "would remove" if dry_run else "removed"
    report(
        {"entries": len(leaving), "bytes": freed, "dry_run": dry_run},
        lambda: click.echo(f"{what} {len(leaving)} {'entry' if len(leaving) == 1 else 'entries'}, {size(freed)}"),
    )


def lab_options() -> LabOptions:
    """Return where the lab's cache is.

    Raises:
        click.ClickException: none is set.
    """
    options = LabOptions.from_environment()
    if options is None:
        raise click.ClickException("no lab's cache is set: set JITSERVER_SHARE to its URL, such as s3://bucket/folder")
    return options


@contextlib.contextmanager
def _storage_errors(options: LabOptions) -> Iterator[None]:
    """Report the errors of a storage. Each kind has exceptions of its own."""
    try:
        yield
    except (click.ClickException, JitserverError):
        raise
    except Exception as error:
        raise click.ClickException(f"cannot use {options.url}: {type(error).__name__}: {error}") from error
