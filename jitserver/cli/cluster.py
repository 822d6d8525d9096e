"""The commands `jitserver cluster up`, `status` and `down`: the daemons of the hosts of pools."""

import concurrent.futures
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from jitclient.errors import JitserverError
from jitclient.pools.daemons import HostDaemon, daemons_of, daemons_to_start
from jitserver.cli.common import NOT_RUNNING, json_option, print_table, report, seconds, size

_MAX_AT_ONCE = 32

_hosts = click.argument("hosts", nargs=-1, required=True, metavar="HOST...")


@click.group()
def cluster() -> None:
    """Start, show and end the daemons of the hosts of a pool.

    HOST is `local`, `ssh://[user@]host[/environment]`, `ray://head:port`, or `ray` for the cluster of this machine.
    """


@cluster.command()
@_hosts
@click.option("--gpus", type=click.FloatRange(min=0), help="Accelerators of each host of a Ray cluster. [default: 0]")
@click.option("--hosts", "host_count", type=click.IntRange(min=1), help="Hosts of a Ray cluster. [default: all]")
@json_option
def up(hosts: Sequence[str], gpus: float | None, host_count: int | None) -> None:
    """Start the daemons, before the first program does.

    Those of a Ray cluster stay until `jitserver cluster down`, and hold its accelerators until then.
    """
    given = {"gpus": gpus, "hosts": host_count}
    options = {name: value for name, value in given.items() if value is not None}
    failed = _on_each([one for host in hosts for one in daemons_to_start(host, options)], _start)
    _show([*failed, *_on_each(_all(hosts), _status)])


@cluster.command()
@_hosts
@json_option
def status(hosts: Sequence[str]) -> None:
    """Show the daemons and what they hold."""
    _show(_on_each(_all(hosts), _status))


@cluster.command()
@_hosts
@json_option
def down(hosts: Sequence[str]) -> None:
    """End the daemons after running calls, and free the accelerators that Ray has reserved for them.

    The arrays that they hold are lost. Programs stay on the disks of the hosts.
    """
    ended = _on_each(_all(hosts), _stop)
    report(ended, lambda: click.echo("\n".join(map(_line, ended)) or "no daemon is running"))
    _exit_if_failed(ended)


def _all(hosts: Sequence[str]) -> list[HostDaemon]:
    return [one for host in hosts for one in daemons_of(host)]


def _start(daemon: HostDaemon) -> dict[str, Any] | None:
    daemon.start()
    return None


def _status(daemon: HostDaemon) -> dict[str, Any]:
    found = daemon.status()
    # Without a daemon, the command says so in an error.
    return found if found["running"] else {"running": False}


def _stop(daemon: HostDaemon) -> dict[str, Any]:
    daemon.stop()
    return {"running": False, "result": "ended"}


def _on_each(daemons: Sequence[HostDaemon], act: Callable[[HostDaemon], dict[str, Any] | None]) -> list[dict[str, Any]]:
    """Act on all daemons at once; return what that gave for each, or why it failed."""

    def row(daemon: HostDaemon) -> dict[str, Any] | None:
        try:
            found = act(daemon)
        except JitserverError as error:
            return {"host": daemon.name, "running": None, "error": str(error)}
        return None if found is None else {"host": daemon.name, **found}

    with concurrent.futures.ThreadPoolExecutor(_MAX_AT_ONCE) as threads:
        return [found for found in threads.map(row, daemons) if found is not None]


def _show(rows: list[dict[str, Any]]) -> None:
    report(rows, lambda: _print(rows))
    _exit_if_failed(rows)
    if not any(row["running"] for row in rows):
        sys.exit(NOT_RUNNING)


def _exit_if_failed(rows: list[dict[str, Any]]) -> None:
    if any("error" in row for row in rows):
        sys.exit(1)


def _print(rows: list[dict[str, Any]]) -> None:
    cells = [
        [
            row["host"],
            f"pid {row['pid']}, up {seconds(row['uptime_s'])}",
            ", ".join(row["devices"]),
            f"{row['entries']} programs, {row['compiles']} compiles",
            f"{row['arrays']} ({size(row['array_bytes'])}), {row['names']} named",
        ]
        for row in rows
        if row["running"]
    ]
    if cells:
        print_table(["host", "daemon", "devices", "programs", "arrays"], cells)
    for row in rows:
        if not row["running"]:
            click.echo(_line(row))
    if not rows:
        click.echo("no daemon is running")


def _line(row: dict[str, Any]) -> str:
    return f"{row['host']}: {row.get('error') or row.get('result') or 'no daemon is running'}"
