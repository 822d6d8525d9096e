"""The display of `jitserver top`."""

from pathlib import Path
from typing import TYPE_CHECKING

from jitclient.wire.introspection import Called, DeviceMemory, Making, Running, Snapshot
from jitserver.cli.common import seconds, size, table
from jitserver.cli.rates import Busy, Rates
from jitserver.system.process_watch import command_line

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_MAX_ROWS = 10
_MAX_WIDTH = 48
_STOP_ADVICE = """
A running program cannot be interrupted: when its client is interrupted or killed, the program continues.
`jitserver restart` stops all programs: at once those whose client has exited, the others after `--drain` seconds.
Other clients keep their arrays."""


def display(found: Snapshot, rates: Rates) -> "Group":
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
    return rows + [["device", _device(device)] for device in found.devices]


def _device(device: DeviceMemory) -> str:
    if device.used is None:
        return device.device
    return f"{device.device}: {size(device.used)}" + (f" of {size(device.limit)}" if device.limit else "")


def _tables(found: Snapshot, rates: Rates) -> list["Table"]:
    tables = [
        ("being made", ["program", "", "since", "for", "waiting"], [_making(making) for making in found.making]),
        ("long calls", ["running for", "function", "client", ""], [_running(running) for running in found.running]),
        ("sessions", ["pid", "program", "calls/s", "arrays", "holding"], [_session(busy) for busy in rates.sessions]),
        ("hottest", ["key", "function", "calls", "seconds"], [_hot(hot) for hot in rates.hottest]),
    ]
    return [
        table(title if len(rows) <= _MAX_ROWS else f"{title}, {_MAX_ROWS} of {len(rows)}", columns, rows[:_MAX_ROWS])
        for title, columns, rows in tables
        if rows
    ]


def process(pid: int) -> str:
    """Return a client's process id as text; "remote" for a client on another machine."""
    return str(pid) if pid else "remote"


def _making(making: Making) -> list[str]:
    first, *others = making.pids
    waiting = ", ".join(map(process, others)) or "none"
    return [making.label, making.phase, seconds(making.seconds), process(first), waiting]


def _running(running: Running) -> list[str]:
    label = running.label or "(waits for results)"
    client = running.program or process(running.pid)
    return [seconds(running.seconds), label, client, "has exited" if running.gone else "waits"]


def _session(busy: Busy) -> list[str]:
    session = busy.session
    program = session.program or program_of(session.pid)
    short = program if len(program) <= _MAX_WIDTH else f"{program[: _MAX_WIDTH - 1]}…"
    rate = f"{busy.calls_per_second:,.1f}"
    return [process(session.pid), short, rate, str(session.arrays), size(session.array_bytes)]


def _hot(hot: Called) -> list[str]:
    return [hot.key[:12], hot.label, str(hot.calls), f"{hot.seconds:.3f}"]


def program_of(pid: int) -> str:
    """Return a process's command line, without the directory of its interpreter; empty if the process has exited."""
    words = command_line(pid)
    return " ".join([Path(words[0]).name, *words[1:]]) if words else ""
