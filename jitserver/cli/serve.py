"""The command `jitserver serve`: the daemon, in the foreground."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from jitclient.errors import DaemonUnavailable, JitserverError
from jitclient.session import launch
from jitclient.wire.address import Address
from jitserver.cli.common import local_address

_MAX_SECONDS = 1e9


def _mebibytes(name: str, minimum: int, help_text: str, default: str) -> Callable[..., Any]:
    """Return an option in MiB, such as `shared-memory`, for a field in bytes, such as `shared_bytes`."""
    return click.option(
        f"--{name}",
        f"{name.removesuffix('-memory')}_bytes",
        envvar=f"JITSERVER_SERVE_{name.replace('-', '_').upper()}",
        type=click.IntRange(min=minimum),
        metavar="MIB",
        callback=lambda _, __, value: None if value is None else value << 20,
        help=f"{help_text} [default: {default}]",
    )


def _seconds(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not value < _MAX_SECONDS:  # this form also rejects nan
        raise click.BadParameter(f"{value} is not a number of seconds.")
    return value


@click.command()
@click.option("--address", metavar="unix:PATH", help="Address to listen at. [default: the user's own]")
@click.option(
    "--idle-exit",
    type=click.FloatRange(min=0),
    callback=_seconds,
    metavar="SECONDS",
    help="Exit after this time without clients and named arrays.",
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    callback=_seconds,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for running calls to finish on shutdown.",
)
@click.option(
    "--most-classes",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="Restart when idle with more than this number of user classes, which JAX never frees.",
)
@_mebibytes(
    "shared-memory",
    0,
    "Limit of the memory shared with clients; 0: arrays go over the socket.",
    "a quarter of the machine's",
)
@_mebibytes(
    "array-memory",
    1,
    "Memory budget of the arrays on each device.",
    "90 % of its memory; on the CPU half of the machine's",
)
@_mebibytes("program-memory", 1, "Approximate memory limit of programs.", "an eighth of the machine's")
@_mebibytes(
    "disk",
    0,
    "Limit of the caches of all environments on the disk; 0: no disk cache.",
    "a tenth of what is free, 10 GiB at most",
)
@click.option(
    "--most-connections",
    type=click.IntRange(min=1),
    help="Limit of connections, beyond which programs run without the daemon. "
    "[default: a quarter of the limit of open files, 1000 at most]",
)
@click.option(
    "--packages",
    envvar=launch.PACKAGES_VARIABLE,
    metavar="NAMES",
    help="Packages to import before a program needs them, separated by spaces; only those that depend on jax.",
)
@click.option("--prewarm/--no-prewarm", default=True, help="Load programs from the disk at the start. [default: yes]")
def serve(address: str | None, **options: Any) -> None:
    """Run the daemon in the foreground, as systemd does.

    On SIGTERM and Ctrl-C the daemon accepts no new calls, waits for running calls, and saves the arrays for the next
    daemon.
    """
    from jitserver.daemon.process_setup import (
        install_read_detection,
        may_have_accelerator,
        prepare_process,
        raise_open_file_limit,
        shorten_switch_interval,
    )
    from jitserver.system.malloc import keep_freed

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("jax").setLevel(logging.WARNING)
    where = Address.parse(address) if address else local_address()
    # On failure, clients do not wait for this daemon; if the address is unusable, `HeldAddress` reports the reason.
    with contextlib.suppress(DaemonUnavailable, OSError):
        launch.hold_start_lock(where)
    prepare_process()
    shorten_switch_interval()
    raise_open_file_limit()
    if not may_have_accelerator():
        keep_freed()
    install_read_detection()
    from jitserver.daemon.daemon import RESTART_REASON, Daemon  # imports jax
    from jitserver.daemon.serve_options import Options

    options["packages"] = tuple((options["packages"] or "").split())
    given = {name: value for name, value in options.items() if value is not None}
    try:
        restart_reason = Daemon(Options(where, **given)).run()
    except JitserverError:  # some are OSErrors, too; the command group prints them
        raise
    except Exception:  # click would hide a broken pipe
        logging.exception("the daemon failed")
        logging.shutdown()
        os._exit(1)
    logging.shutdown()
    if restart_reason:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, RESTART_REASON: restart_reason})
    # Skip the interpreter's shutdown, during which a thread that is still compiling would crash.
    os._exit(0)
