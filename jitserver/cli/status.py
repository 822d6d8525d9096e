"""The command `jitserver status`."""

import sys

import click
import msgspec

from jitclient.errors import DaemonUnavailable
from jitclient.wire.address import RunningDaemon, running_daemons
from jitclient.wire.introspection import ShareStatus, Status
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, helpers_line, json_option, print_table, report, seconds, size
from jitserver.run import helpers


@click.command()
@json_option
def status() -> None:
    """Show whether a daemon is running, and its counters; name your other daemons.

    Programs with other settings of the whole process (XLA_FLAGS, JAX_PLATFORMS, ...) or of other environments have
    other daemons.
    """
    try:
        found: Status = ask(Verb.STATUS, None, Status)
    except DaemonUnavailable as error:
        lines = "".join(f"\n  {_of_other(each)}" for each in running_daemons())
        raise DaemonUnavailable(f"{error}{lines and ' Your other daemons:'}{lines}") from error
    running, others = helpers.running(), [each for each in running_daemons() if str(each.address) != found.address]
    told = {
        **{"running": True, **msgspec.structs.asdict(found)},
        "helpers": [each._asdict() for each in running],
        "others": [{**each._asdict(), "address": str(each.address)} for each in others],
    }
    report(told, lambda: _print(found, running, others))


def _of_other(found: RunningDaemon) -> str:
    where = "" if found.environment == sys.prefix else f", environment {found.environment}"
    return f"pid {found.pid}, {found.address}{where}, {found.settings or 'default settings'}"


def _print(found: Status, running: list[helpers.RunningHelper], others: list[RunningDaemon]) -> None:
    packages = ", ".join(f"{name} {version}" for name, version in found.packages.items())
    rows = [
        ["daemon", f"pid {found.pid}, up {seconds(found.uptime_s)}, {found.address}"],
        ["versions", f"jitserver {found.version}, Python {found.python}, {packages}"],
        ["devices", ", ".join(found.devices)],
        ["memory", size(found.memory_bytes)],
        ["sessions", f"{found.sessions}, holding {found.arrays} arrays ({size(found.array_bytes)})"],
        ["named arrays", _names(found)],
        [
            "programs",
            f"{found.entries} in memory; {found.hits} hits ({found.restores} from the disk), {found.misses} misses",
        ],
        [
            "on the disk",
            f"{size(found.disk_bytes)} of programs; {found.compilations} compilations of jax's own"
            f" ({size(found.compilation_bytes)}); {size(found.other_disk_bytes)} of other environments;"
            f" limit for all {size(found.max_disk_bytes)}",
        ],
        [
            "work",
            f"{found.calls} calls, {found.traces} traces, {found.compiles} compiles ({found.text_hits} found by text)",
        ],
        ["compiling", f"{seconds(found.compile_seconds)} spent, {seconds(found.compile_seconds_saved)} saved"],
        ["in clients", f"{found.client_traces} traces, {found.local_runs} local runs"],
    ]
    if found.share is not None:
        rows.append(["lab's cache", of_share(found.share)])
    if found.recordings:
        rows.append(["profiler", f"records for {found.recordings}; calls take longer meanwhile"])
    if found.restarted:
        rows.append(["restarted", found.restarted])
    abandoned = {"calls are running": found.abandoned, "programs are being made": found.abandoned_programs}
    rows += [
        ["abandoned", f"{count} {what} whose clients have gone; see `jitserver top`"]
        for what, count in abandoned.items()
        if count
    ]
    if running:
        rows.append(["helpers", helpers_line(running)])
    rows += [["other daemon", _of_other(each)] for each in others]
    print_table(["jitserver", "is running"], rows)


def _names(found: Status) -> str:
    lost = ", ".join(map(repr, found.lost_names))
    return f"{found.names} trees" + (f"; lost: {lost}, see `jitserver arrays ls`" if lost else "")


def of_share(found: ShareStatus) -> str:
    """Return what the lab's cache has given a daemon, as text."""
    rejected = "".join(f", {number} rejected ({reason})" for reason, number in found.rejected.items())
    off = f"; not used now: {found.why_off}" if found.why_off else ""
    saved = f" ({seconds(found.seconds_saved)} saved)" if found.found else ""
    return f"{found.found} found{saved}, {found.missed} missed, {found.uploaded} uploaded{rejected}{off}"
