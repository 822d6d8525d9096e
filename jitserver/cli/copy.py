"""The command `jitserver cache copy`: programs from the disk or a file to the disk, a file or the lab's cache."""

import collections
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from jitclient.core.directories import environment_directory, existing_directories
from jitserver.cli.common import json_option, number, report, track
from jitserver.cli.share import lab_options
from jitserver.store import archive
from jitserver.store.archive import CachedItem
from jitserver.store.share.share import MIN_SECONDS, Share
from jitserver.store.share.storage import Storage
from jitserver.store.tiers import disk_share

_DISK, _LAB = "disk", "lab"


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("destination", metavar="TO")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@json_option
def copy_cache(source: str, destination: str, keys: tuple[str, ...]) -> None:
    """Copy cached programs and compilations that TO lacks.

    FROM is `disk`, the caches of this environment, or a tar file that this command has made. TO is `disk`, where a
    running daemon finds them, `lab`, the lab's cache, which takes the programs that took 0.3 s or more to make, or
    a new tar file. Such a file holds what your functions captured, so only you can read it. Copy to the disk only what
    you trust: compiled programs are code.
    """
    if source in (destination, _LAB):
        raise click.UsageError("FROM must be `disk` or a file, and TO another place: a daemon asks the lab by itself")
    if "://" in f"{source} {destination}":
        raise click.UsageError("a URL is that of the lab's cache: set JITSERVER_SHARE to it, and copy to `lab`")
    counts, left_out = {"programs": 0, "compilations": 0}, collections.Counter[str]()
    try:
        with _destination(destination) as put:
            for item in track((item for item in _items(source) if item.is_meant(keys)), "copying"):
                if why := put(item):
                    left_out[why] += 1
                else:
                    counts[item.name.partition("/")[0]] += 1
            if keys and not left_out and not any(counts.values()):
                raise click.ClickException(f"no program of {source} matches {' '.join(keys)}")
    except OSError as error:
        raise click.ClickException(str(error)) from error
    told = {"result": "copied", "from": source, "to": destination, **counts, "left_out": dict(left_out)}
    what = f"copied {number(counts['programs'], 'program')} and {number(counts['compilations'], 'compilation')}"
    others = ", ".join(f"{count} {why}" for why, count in left_out.items())
    report(told, lambda: click.echo(f"{what}; left out: {others}" if others else what))


def _items(source: str) -> Iterator[CachedItem]:
    if source == _DISK:
        return archive.of_disk(existing_directories())
    return archive.read(Path(source), disk_share(environment_directory()))


def _destination(name: str) -> contextlib.AbstractContextManager[Callable[[CachedItem], str]]:
    if name == _LAB:
        return contextlib.nullcontext(_lab())
    directory = environment_directory()
    return archive.to_disk(directory, disk_share(directory)) if name == _DISK else archive.written(Path(name))


def _lab() -> Callable[[CachedItem], str]:
    options = lab_options()
    if not options.writes:
        raise click.ClickException("JITSERVER_SHARE_MODE is `read`: this machine may not upload")
    lab = Share(Storage(options))

    def put(item: CachedItem) -> str:
        if item.program is None:
            return "of jax's own"
        if not item.program.executable:
            return "without executable"
        if sum(item.program.stored.info.seconds.values()) < MIN_SECONDS:
            return "too quick to make"
        is_new = lab.put(item.program.stored, item.program.executable)
        if lab.storage.why_off:
            raise click.ClickException(f"cannot use {options.url}: {lab.storage.why_off}")
        return "" if is_new else archive.ALREADY_THERE

    return put
