"""The command `jitserver purge`: removes what jitserver keeps for environments that no longer exist, or everything."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from jitclient.core.directories import cache_root, environment_of, runtime_directory
from jitclient.session.launch import log_directory
from jitclient.wire.address import Address
from jitserver.cli.common import json_option, report, size

_DIGEST = re.compile("[0-9a-f]{12}")


class _Files(NamedTuple):
    """Files of one environment, or of all: where the environment is, if that is known, and the paths."""

    environment: str
    paths: list[Path]


@click.command()
@click.option("--all", "everything", is_flag=True, help="Remove the files of all environments, statistics as well.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed.")
@json_option
def purge(everything: bool, dry_run: bool) -> None:
    """Remove caches, logs and sockets of Python environments that no longer exist.

    An environment with a running daemon keeps its files; with --all, a running daemon is an error. Files of systemd
    units are removed by `jitserver uninstall`.
    """
    if everything and (running := sorted(str(address) for address in _held(_directories()))):
        raise click.ClickException(f"a daemon is running at {', '.join(running)}. Stop it first: `jitserver stop`")
    found = list(_everything() if everything else _of_missing_environments())
    removed = [
        {"environment": files.environment, "bytes": sum(map(_bytes, files.paths)), "paths": list(map(str, files.paths))}
        for files in found
    ]
    if not dry_run:
        for path in (path for files in found for path in files.paths):
            _remove(path)
    result = "planned" if dry_run else "removed"
    report({"result": result, "removed": removed}, lambda: _print(result, removed))


def _print(result: str, removed: list[dict[str, object]]) -> None:
    for files in removed:
        click.echo(f"{result}: {files['environment']}, {size(files['bytes'])}")  # type: ignore[arg-type]
        for path in files["paths"]:  # type: ignore[attr-defined]
            click.echo(f"  {path}")
    if not removed:
        click.echo("nothing to remove")


def _directories() -> list[Path]:
    """Return the cache directories of all environments."""
    root = cache_root()
    return sorted(path for path in root.iterdir() if _DIGEST.fullmatch(path.name)) if root.is_dir() else []


def _held(directories: list[Path]) -> list[Address]:
    """Return the addresses of the daemons that run for environments, at their default addresses."""
    addresses = [Address(runtime_directory() / f"{directory.name}.sock") for directory in directories]
    return [address for address in addresses if address.is_held()]


def _of_missing_environments() -> Iterator[_Files]:
    for directory in _directories():
        environment = environment_of(directory)
        is_missing = environment is not None and not (environment / "bin").exists()
        if is_missing and not _held([directory]):
            beside = [
                *log_directory().glob(f"{directory.name}-*.log"),
                *runtime_directory().glob(f"{directory.name}.*"),
            ]
            yield _Files(str(environment), [directory, *sorted(beside)])


def _everything() -> Iterator[_Files]:
    folders = {folder for folder in (cache_root(), log_directory(), runtime_directory()) if folder.is_dir()}
    # The logs, or the sockets, may be in the cache's folder.
    paths = [path for path in sorted(folders) if not folders.intersection(path.parents)]
    if paths:
        yield _Files("all environments", paths)


def _bytes(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
