"""The command `jitserver status`."""

import sys
from typing import Any

import click
import msgspec

from jitclient.errors import DaemonUnavailable
from jitclient.wire.address import RunningDaemon, running_daemons
from jitclient.wire.introspection import (
    Called,
    DeviceMemory,
    Making,
    Running,
    SessionInfo,
    ShareStatus,
    Snapshot,
    Status,
)
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, client_process, helpers_line, json_option, print_table, report, seconds, size
from jitserver.run import helpers
from jitserver.system.process_watch import program_of

_MAX_ROWS = 10
_MAX_WIDTH = 36
_STOP_ADVICE = """
A running program cannot be interrupted: when its client is interrupted or killed, the program continues.
`jitserver restart` stops all programs: at once those whose client has exited, the others after `--drain` seconds.
Other clients keep their arrays."""


@click.command()
@click.option("--calls", is_flag=True, help="Show also who calls what, what is being made, and which calls take long.")
@json_option
def status(calls: bool) -> None:
    """Show whether a daemon is running, and its counters; name your other daemons.

    Programs with other settings of the whole process (XLA_FLAGS, JAX_PLATFORMS, ...) or of other environments have
    other daemons.

    With --calls, the seconds of a function and of a session are those of its calls. On an accelerator, a few calls are
    measured, and count for the others; there, calls are queued while the device does earlier work. Programs that have
    moved in run in the client's process, and their calls do not count.
    """
    try:
        snapshot: Snapshot | None = ask(Verb.SNAPSHOT, None, Snapshot) if calls else None
        found: Status = ask(Verb.STATUS, None, Status) if snapshot is None else snapshot.status
    except DaemonUnavailable as error:
        lines = "".join(f"\n  {_of_other(each)}" for each in running_daemons())
        raise DaemonUnavailable(f"{error}{lines and ' Your other daemons:'}{lines}") from error
    running, others = helpers.running(), [each for each in running_daemons() if str(each.address) != found.address]
    told = {
        **{"running": True, **msgspec.structs.asdict(found)},
        "helpers": [each._asdict() for each in running],
        "others": [{**each._asdict(), "address": str(each.address)} for each in others],
    }
    if snapshot is not None:
        told["activity"] = _activity(snapshot)
    report(told, lambda: _print(found, running, others, snapshot))


def _of_other(found: RunningDaemon) -> str:
    where = "" if found.environment == sys.prefix else f", environment {found.environment}"
    return f"pid {found.pid}, {found.address}{where}, {found.settings or 'default settings'}"


def _activity(snapshot: Snapshot) -> dict[str, Any]:
    """Return the parts of a snapshot as JSON has them."""
    sessions = [{**msgspec.structs.asdict(each), "program": _program(each)} for each in snapshot.sessions]
    parts = {name: getattr(snapshot, name) for name in ("making", "running", "programs", "devices")}
    return {"sessions": sessions, **parts}


def _print_activity(snapshot: Snapshot) -> None:
    """Print the parts of a snapshot as tables, without empty ones."""
    sessions = sorted(snapshot.sessions, key=lambda each: (-each.seconds, each.begun))
    hottest = sorted(snapshot.programs, key=lambda each: (-each.seconds, -each.calls))
    tables = [
        (["device", "memory"], [_device(each) for each in snapshot.devices if each.used is not None]),
        (["being made", "", "since", "for", "waiting"], [_making(each) for each in snapshot.making]),
        (["running for", "function", "client", ""], [_running(each) for each in snapshot.running]),
        (
            ["pid", "program", "calls", "seconds", "moved in", "arrays", "holding"],
            [_session(each) for each in sessions],
        ),
        (["key", "function", "calls", "seconds", "queued"], [_called(each) for each in hottest]),
    ]
    for columns, rows in tables:
        if rows:
            print_table(columns, rows[:_MAX_ROWS])
        if len(rows) > _MAX_ROWS:
            click.echo(f"and {len(rows) - _MAX_ROWS:,} more: show them with --json")
    if snapshot.running:
        click.echo(_STOP_ADVICE)


def _device(device: DeviceMemory) -> list[str]:
    return [device.device, size(device.used or 0) + (f" of {size(device.limit)}" if device.limit else "")]


def _making(making: Making) -> list[str]:
    first, *others = map(client_process, making.pids) if making.pids else ["(clients have gone)"]
    return [making.label, making.phase, seconds(making.seconds), first, ", ".join(others) or "none"]


def _running(running: Running) -> list[str]:
    label = running.label or "(waits for results)"
    client = running.program or client_process(running.pid)
    return [seconds(running.seconds), label, client, "has exited" if running.gone else "waits"]


def _session(session: SessionInfo) -> list[str]:
    program = _program(session)
    short = program if len(program) <= _MAX_WIDTH else f"{program[: _MAX_WIDTH - 1]}…"
    counted = [f"{session.calls:,}", f"{session.seconds:.3f}", f"{session.moved_in:,}", f"{session.arrays:,}"]
    return [client_process(session.pid), short, *counted, size(session.array_bytes)]


def _program(session: SessionInfo) -> str:
    return session.program or program_of(session.pid)


def _called(called: Called) -> list[str]:
    return [called.key[:12], called.label, f"{called.calls:,}", f"{called.seconds:.3f}", f"{called.queued:.3f}"]


def _print(
    found: Status, running: list[helpers.RunningHelper], others: list[RunningDaemon], snapshot: Snapshot | None
) -> None:
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
        rows.append(["profiler", "records for a client; calls take longer meanwhile"])
    if found.restarted:
        rows.append(["restarted", found.restarted])
    abandoned = {"calls are running": found.abandoned, "programs are being made": found.abandoned_programs}
    rows += [
        ["abandoned", f"{count} {what} whose clients have gone; see `jitserver status --calls`"]
        for what, count in abandoned.items()
        if count
    ]
    if running:
        rows.append(["helpers", helpers_line(running)])
    rows += [["other daemon", _of_other(each)] for each in others]
    print_table(["jitserver", "is running"], rows)
    if snapshot is not None:
        _print_activity(snapshot)


def _names(found: Status) -> str:
    lost = ", ".join(map(repr, found.lost_names))
    return f"{found.names} trees" + (f"; lost: {lost}, see `jitserver arrays ls`" if lost else "")


def of_share(found: ShareStatus) -> str:
    """Return what the lab's cache has given a daemon, as text."""
    rejected = "".join(f", {number} rejected ({reason})" for reason, number in found.rejected.items())
    off = f"; not used now: {found.why_off}" if found.why_off else ""
    saved = f" ({seconds(found.seconds_saved)} saved)" if found.found else ""
    return f"{found.found} found{saved}, {found.missed} missed, {found.uploaded} uploaded{rejected}{off}"
