"""The command `jitserver top`: the current activity of the daemon."""

import time
from typing import Any

import click

from jitclient.errors import DaemonLost, DaemonSilent, DaemonUnavailable
from jitclient.wire.introspection import Snapshot, Top
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, console, json_option, report
from jitserver.cli.rates import RateMeter, Rates
from jitserver.cli.top_display import display, program_of


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

    The seconds of a function are those of its calls; on an accelerator, those that it took to dispatch them.
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
    report(_for_programs(found, rates), lambda: console().print(display(found, rates), markup=False))


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
            "arrays": busy.session.arrays,
            "array_bytes": busy.session.array_bytes,
        }
        for busy in rates.sessions
    ]
    inside = {"making": found.making, "running_calls": found.running, "devices": found.devices, "status": found.status}
    return {"running": True, **vars(rates), "sessions": sessions, **inside}
