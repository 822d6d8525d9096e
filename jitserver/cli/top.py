"""The command `jitserver top`: the current activity of the daemon."""

import time
from typing import TYPE_CHECKING, Any

import click

from jitclient.errors import DaemonLost, DaemonSilent, DaemonUnavailable
from jitclient.wire.introspection import Called, DeviceMemory, Making, Running, Snapshot, Top
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, client_process, console, helpers_line, json_option, report, seconds, size, table
from jitserver.cli.rates import Busy, RateMeter, Rates
from jitserver.run import helpers
from jitserver.system.process_watch import program_of

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_MAX_ROWS = 10
_MAX_WIDTH = 36
_SESSION = ["pid", "program", "calls/s", "busy", "sent here", "sent back", "arrays", "holding"]
_STOP_ADVICE = """
A running program cannot be interrupted: when its client is interrupted or killed, the program continues.
`jitserver restart` stops all programs: at once those whose client has exited, the others after `--drain` seconds.
Other clients keep their arrays."""


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Compute the rates over this time. [default: since the daemon started]",
)
@json_option
def top(interval: float | None) -> None:
    """Show what the daemon is doing.

    Shows who calls what and how often, what is being compiled, which calls have been running for long, and the memory
    in use. `watch jitserver top --interval 1` repeats it.

    The seconds of a function are those of its calls, and a session is busy for those of its own. On an accelerator, a
    few calls are measured, and count for the others; there, calls are queued while the device does earlier work.
    """
    meter = RateMeter()
    try:
        found, rates = _look(meter)
        if interval is not None:
            time.sleep(interval)
            found, rates = _look(meter)
    except DaemonSilent:
        raise
    except DaemonLost as error:
        raise DaemonUnavailable(str(error)) from error
    report(_for_programs(found, rates), lambda: console().print(_display(found, rates), markup=False))


def _look(meter: RateMeter) -> tuple[Snapshot, Rates]:
    found: Snapshot = ask(Verb.TOP, Top(meter.since), Snapshot)
    return found, meter.rates(found)


def _for_programs(found: Snapshot, rates: Rates) -> dict[str, Any]:
    sessions = [
        {
            "pid": busy.session.pid,
            "program": busy.session.program or program_of(busy.session.pid),
            "age_s": found.now - busy.session.begun,
            "calls": busy.session.calls,
            "calls_per_second": busy.calls_per_second,
            "busy": busy.busy,
            "received_per_second": busy.received_per_second,
            "sent_per_second": busy.sent_per_second,
            "arrays": busy.session.arrays,
            "array_bytes": busy.session.array_bytes,
        }
        for busy in rates.sessions
    ]
    inside = {"making": found.making, "running_calls": found.running, "devices": found.devices, "status": found.status}
    inside["helpers"] = [each._asdict() for each in helpers.running()]
    return {"running": True, **vars(rates), "sessions": sessions, **inside}


def _display(found: Snapshot, rates: Rates) -> "Group":
    """Return the whole display, without empty tables."""
    from rich.console import Group

    daemon = f"pid {found.status.pid}, up {seconds(found.status.uptime_s)}; rates over {seconds(rates.seconds)}"
    advice = [_STOP_ADVICE] if found.running else []
    return Group(table("", ["jitserver", daemon], _head(found, rates)), *_tables(found, rates), *advice)


def _head(found: Snapshot, rates: Rates) -> list[list[str]]:
    status = found.status
    hit_rate = "" if rates.hit_rate is None else f", hit rate {100 * rates.hit_rate:.0f} %"
    lent = f"; {size(status.lent_bytes)} of {size(status.shared_bytes)} shared are lent"
    rows = [
        ["calls", f"{rates.calls_per_second:,.1f} per second"],
        ["programs", f"{status.entries} cached; {rates.hits} found, {rates.misses} made{hit_rate}"],
        ["arrays", f"{status.arrays} ({size(status.array_bytes)})"],
        ["memory", size(status.memory_bytes) + (lent if status.shared_bytes else "")],
    ]
    running = helpers.running()
    rows += [["helpers", helpers_line(running)]] if running else []
    return rows + [["device", _device(device)] for device in found.devices]


def _device(device: DeviceMemory) -> str:
    if device.used is None:
        return device.device
    return f"{device.device}: {size(device.used)}" + (f" of {size(device.limit)}" if device.limit else "")


def _tables(found: Snapshot, rates: Rates) -> list["Table"]:
    tables = [
        ("being made", ["program", "", "since", "for", "waiting"], [_making(making) for making in found.making]),
        ("long calls", ["running for", "function", "client", ""], [_running(running) for running in found.running]),
        ("sessions", _SESSION, [_session(busy) for busy in rates.sessions]),
        ("hottest", ["key", "function", "calls", "seconds", "queued"], [_hot(hot) for hot in rates.hottest]),
    ]
    return [
        table(title if len(rows) <= _MAX_ROWS else f"{title}, {_MAX_ROWS} of {len(rows)}", columns, rows[:_MAX_ROWS])
        for title, columns, rows in tables
        if rows
    ]


def _making(making: Making) -> list[str]:
    first, *others = map(client_process, making.pids) if making.pids else ["(clients have gone)"]
    return [making.label, making.phase, seconds(making.seconds), first, ", ".join(others) or "none"]


def _running(running: Running) -> list[str]:
    label = running.label or "(waits for results)"
    client = running.program or client_process(running.pid)
    return [seconds(running.seconds), label, client, "has exited" if running.gone else "waits"]


def _session(busy: Busy) -> list[str]:
    session = busy.session
    program = session.program or program_of(session.pid)
    short = program if len(program) <= _MAX_WIDTH else f"{program[: _MAX_WIDTH - 1]}…"
    rates = [f"{busy.calls_per_second:,.1f}", f"{100 * busy.busy:.0f} %"]
    rates += [f"{size(int(busy.received_per_second))}/s", f"{size(int(busy.sent_per_second))}/s"]
    return [client_process(session.pid), short, *rates, str(session.arrays), size(session.array_bytes)]


def _hot(hot: Called) -> list[str]:
    return [hot.key[:12], hot.label, str(hot.calls), f"{hot.seconds:.3f}", f"{hot.queued:.3f}"]
