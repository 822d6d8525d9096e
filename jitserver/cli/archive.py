"""The commands `jitserver cache export|import`: a cache as a file, for machines of the same kind."""

from pathlib import Path

import click

from jitclient.core.directories import environment_directory, existing_directories
from jitserver.cli.common import json_option, number, report, size
from jitserver.store import archive
from jitserver.store.tiers import disk_share

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command("export")
@_FILE
@json_option
def export_cache(file: Path) -> None:
    """Write the cached programs and compilations on the disk to FILE, a tar file.

    FILE holds what your functions captured, so only you can read it.
    """
    _report("exported", file, archive.export_cache(file, existing_directories()))


@click.command("import")
@_FILE
@json_option
def import_cache(file: Path) -> None:
    """Add the programs and compilations in FILE to the cache, which a running daemon finds.

    Import only what you trust: compiled programs are code.
    """
    directory = environment_directory()
    _report("imported", file, archive.import_cache(file, directory, disk_share(directory)))


def _report(what: str, file: Path, moved: archive.Moved) -> None:
    nbytes = file.stat().st_size
    report(
        {"result": what, "file": str(file), "bytes": nbytes, **moved._asdict()},
        lambda: click.echo(
            f"{what} {number(moved.programs, 'program')} and {number(moved.compilations, 'compilation')}; "
            f"{file} has {size(nbytes)}"
        ),
    )
