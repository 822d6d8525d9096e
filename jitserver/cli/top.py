"""`jitserver top` and `cancel`: what the daemon is doing."""

import contextlib
import functools
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import click

from jitclient.errors import DaemonLost, DaemonSilent, DaemonUnavailable
from jitclient.wire.introspection import Running, Snapshot, Top
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, console, json_option, print_table, report, wants_json
from jitserver.cli.picture import RUNNING_COLUMNS, picture, program_of, running_row
from jitserver.cli.rates import RateMeter, Rates

_REFRESH_SECONDS = 1.0
_MOST_KEYS = 64  # typed at once

_ADVICE = """\
A program that runs on a device cannot be interrupted. A client that is interrupted (Ctrl-C) or killed stops waiting for
it, and the program goes on. `jitserver restart` ends all of them: at once those that no client waits for, the others
after `--drain` seconds. Other clients keep their arrays."""

Look = Callable[[], tuple[Snapshot, Rates]]


@click.command()
@click.option("--once", is_flag=True, help="Print once and end, as into a pipe and with --json.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Time between updates, over which rates are computed. [default: 1; if printed once: since the daemon started]",
)
@json_option
def top(once: bool, interval: float | None) -> None:
    """Show what the daemon is doing.

    Shows who calls what and how often, what is being compiled, and the memory in use.

    On a terminal the display is updated each second; q or Ctrl-C ends it. The seconds of a function are those of its
    calls; on an accelerator, those that it took to dispatch them.
    """
    look = functools.partial(_look, RateMeter())
    try:
        if wants_json() or once or not sys.stdout.isatty():
            _print_once(look, interval)
        else:
            _show_live(look, interval or _REFRESH_SECONDS)
    except DaemonSilent:
        raise
    except DaemonLost as error:
        raise DaemonUnavailable(str(error)) from error


@click.command()
@json_option
def cancel() -> None:
    """Show the calls that take long, and say how to end them.

    The exit status is 1 if there are any: this command ends none.
    """
    running = ask(Verb.TOP, Top(), Snapshot).running
    report({"running_calls": running, "advice": _ADVICE if running else ""}, lambda: _print_running(running))
    sys.exit(bool(running))


def _print_running(running: list[Running]) -> None:
    if not running:
        click.echo("no call has been running for long")
        return
    print_table(RUNNING_COLUMNS, [running_row(one) for one in running])
    click.echo(f"\n{_ADVICE}")


def _look(meter: RateMeter) -> tuple[Snapshot, Rates]:
    found: Snapshot = ask(Verb.TOP, Top(meter.since), Snapshot)
    return found, meter.rates(found)


def _print_once(look: Look, interval: float | None) -> None:
    found, rates = look()
    if interval is not None:
        time.sleep(interval)
        found, rates = look()
    report(_for_programs(found, rates), lambda: console().print(picture(found, rates), markup=False))


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


def _show_live(look: Look, interval: float) -> None:
    shown = picture(*look())  # before the screen is cleared, as this may fail
    from rich.live import Live

    with contextlib.suppress(KeyboardInterrupt), _keys() as is_quit, Live(screen=True, auto_refresh=False) as live:
        live.update(shown, refresh=True)
        while not is_quit(interval):
            live.update(picture(*look()), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits for a key and tells if it was q. Until the end, the terminal does not echo keys."""
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # the shell would be left with our screen
    if not sys.stdin.isatty():
        yield functools.partial(_is_quit, [])
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield functools.partial(_is_quit, [descriptor])
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _is_quit(keyboard: list[int], seconds: float) -> bool:
    if not select.select(keyboard, [], [], seconds)[0]:
        return False
    typed = os.read(keyboard[0], _MOST_KEYS)
    return not typed or typed.lower().startswith(b"q")


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)
