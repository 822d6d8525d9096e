"""The command `jitserver purge`: removes what jitserver keeps for environments that no longer exist, or everything."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from jitclient.core.directories import ENVIRONMENT_FILE, cache_root, environment_of, runtime_directory
from jitclient.session.launch import log_directory
from jitclient.wire.address import Address
from jitserver.cli.common import json_option, report, size
from jitserver.store.environments import cache_directories, disk_bytes, is_missing


class _Files(NamedTuple):
    """Files of one environment, or of all: where the environment is, if that is known, and the paths."""

    environment: str
    paths: list[Path]


@click.command()
@click.option("--all", "everything", is_flag=True, help="Remove the files of all environments.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@json_option
def purge(everything: bool, dry_run: bool) -> None:
    """Remove caches, logs and sockets of Python environments that no longer exist.

    An environment with a running daemon keeps its files; with --all, a running daemon is an error. Files of systemd
    units are removed by `jitserver uninstall`.
    """
    if everything and (running := sorted(str(address) for address in _held(cache_directories(cache_root())))):
        raise click.ClickException(f"a daemon is running at {', '.join(running)}. Stop it first: `jitserver stop`")
    found = list(_everything() if everything else _of_missing_environments())
    removed = [
        {
            "environment": files.environment,
            "bytes": sum(map(disk_bytes, files.paths)),
            "paths": list(map(str, files.paths)),
        }
        for files in found
    ]
    paths = [] if dry_run else [path for files in found for path in files.paths]
    kept = [text for path in paths for text in _remove(path)]
    result = "planned" if dry_run else "removed"
    report({"result": result, "removed": removed, "kept": kept}, lambda: _print(result, removed))
    if kept:
        raise click.ClickException("\n".join(["these could not be removed:", *kept]))


def _print(result: str, removed: list[dict[str, object]]) -> None:
    for files in removed:
        click.echo(f"{result}: {files['environment']}, {size(files['bytes'])}")  # type: ignore[arg-type]
        for path in files["paths"]:  # type: ignore[attr-defined]
            click.echo(f"  {path}")
    if not removed:
        click.echo("nothing to remove")


def _held(directories: list[Path]) -> list[Address]:
    """Return the addresses of the daemons that run for environments, at their default addresses."""
    addresses = [Address(runtime_directory() / f"{directory.name}.sock") for directory in directories]
    return [address for address in addresses if address.is_held()]


def _of_missing_environments() -> Iterator[_Files]:
    for directory in cache_directories(cache_root()):
        if is_missing(directory) and not _held([directory]):
            beside = [
                *log_directory().glob(f"{directory.name}-*.log"),
                *runtime_directory().glob(f"{directory.name}.*"),
            ]
            yield _Files(str(environment_of(directory)), [directory, *sorted(beside)])


def _everything() -> Iterator[_Files]:
    folders = {folder for folder in (cache_root(), log_directory(), runtime_directory()) if folder.is_dir()}
    # The logs, or the sockets, may be in the cache's folder.
    paths = [path for path in sorted(folders) if not folders.intersection(path.parents)]
    if paths:
        yield _Files("all environments", paths)


def _remove(path: Path) -> list[str]:
    """Remove a file, or a directory with all that it contains; return what the system refused.

    The file that names a cache's environment stays if anything does: the next purge finds by it what is left.
    """
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return []
        refused = [text for each in path.iterdir() if each.name != ENVIRONMENT_FILE for text in _remove(each)]
        if not refused:
            shutil.rmtree(path)
    except FileNotFoundError:  # another process has removed it
        return []
    except OSError as error:
        return [str(error)]
    return refused
