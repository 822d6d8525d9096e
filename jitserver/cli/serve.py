"""`jitserver serve`: the daemon, in the foreground."""

import dataclasses
import logging
import os
import sys
from typing import Any

import click

from jitclient.errors import JitserverError
from jitclient.wire.address import Address
from jitserver.cli.common import home


@click.command()
@click.option("--address", metavar="unix:PATH", help="Where to listen. [default: the user's own]")
@click.option(
    "--idle-exit",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End when idle for so long, without kept arrays.",
)
@click.option(
    "--drain",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long running calls may take to finish at the end.",
)
@click.option(
    "--most-classes",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="Begin anew, when idle, beyond so many user classes: JAX never forgets one.",
)
@click.option(
    "--shared-memory",
    type=click.IntRange(min=0),
    metavar="MIB",
    help="Memory to share with clients at most; 0: arrays go over the socket. [default: a quarter of the machine's]",
)
@click.option(
    "--array-memory",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Arrays that live here at most. [default: 90 % of the accelerators' memory; on the CPU half of the machine's]",
)
@click.option(
    "--program-memory",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Memory that programs may take, about. [default: an eighth of the machine's]",
)
@click.option(
    "--disk",
    type=click.IntRange(min=0),
    metavar="MIB",
    help="What the cache may take on the disk; 0: nothing. [default: a tenth of what is free, 10 GiB at most]",
)
@click.option(
    "--prewarm/--no-prewarm", default=True, help="Load programs from the disk before anybody asks. [default: yes]"
)
def serve(address: str | None, idle_exit: float | None, drain: float, most_classes: int, **more: Any) -> None:
    """Run the daemon in the foreground, as systemd does.

    SIGTERM and Ctrl-C drain it: no new calls, running ones finish, and the next daemon goes on with the arrays.
    """
    from jitserver.platform.malloc import keep_freed
    from jitserver.server.process_setup import notice_reads, prepare_process, share_the_interpreter

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("jax").setLevel(logging.WARNING)
    prepare_process()
    share_the_interpreter()
    keep_freed()
    notice_reads()
    from jitserver.server.daemon import Daemon  # imports jax
    from jitserver.server.options import Options

    where = Address.parse(address) if address else home()
    options = dataclasses.replace(Options(where, idle_exit, drain, most_classes), **_given(**more))
    try:
        begin_anew = Daemon(options).run()
    except JitserverError:  # some are OSErrors too; the command line says these well
        raise
    except OSError:  # click would say nothing of a broken pipe
        logging.exception("the daemon failed")
        sys.exit(1)
    logging.shutdown()
    if begin_anew:  # a package was upgraded
        os.execv(sys.executable, sys.orig_argv)
    os._exit(0)  # a thread that is still compiling would crash on the way out of the interpreter


def _given(prewarm: bool, **mebibytes: int | None) -> dict[str, Any]:
    names = {
        "shared_memory": "shared_bytes",
        "array_memory": "array_bytes",
        "program_memory": "program_bytes",
        "disk": "disk_bytes",
    }
    given = {names[name]: value << 20 for name, value in mebibytes.items() if value is not None}
    return {"prewarm": prewarm, **given}
