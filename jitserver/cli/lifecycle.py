"""The commands `jitserver start`, `stop`, `restart` and `logs`."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from jitclient.core.polling import Polling
from jitclient.core.settings import settings
from jitclient.errors import DaemonLost, DaemonUnavailable, JitserverError
from jitclient.session import handshake, launch
from jitclient.wire.address import Address, peer, running_daemons
from jitclient.wire.introspection import Snapshot, Status
from jitclient.wire.messages import Verb
from jitclient.wire.named_arrays import Holdings
from jitserver.cli.common import ask, json_option, local_address, report, seconds
from jitserver.cli.systemd import systemctl
from jitserver.cli.systemd.target import Target, installed
from jitserver.run import helpers

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

_STOP_SECONDS = 120.0
_NAMES_SECONDS = 5.0
_HELPER_SECONDS = 5.0


@click.command()
@json_option
def start() -> None:
    """Start the daemon in the background, unless one is running."""
    unit = installed()
    if unit is not None:
        stop_unmanaged_daemon(unit)
        ran = systemctl.main_pid(unit) is not None
        systemctl.start(unit, "start")
        _report("running already" if ran else "started", **_facts(unit))
        return
    pid = launched(local_address())
    found: Status = ask(Verb.STATUS, None, Status)
    _report("started" if pid else "running already", pid=found.pid, address=found.address)


@click.command()
@click.option("--now", is_flag=True, help="Do not wait for running calls and compilations: stop within a second.")
@click.option("--all", "everyone", is_flag=True, help="Stop all of your daemons, whatever their settings are.")
@json_option
def stop(now: bool, everyone: bool) -> None:
    """Stop the daemon after running calls.

    The arrays that it holds are lost, except named arrays. With --now, named arrays that cannot be saved within half a
    second are lost, too.
    """
    if not everyone:
        _report("stopped", **_stopped(now))
        return
    others, stopped, failed = running_daemons(), list[dict[str, Any]](), list[str]()
    with contextlib.suppress(*(DaemonUnavailable,) if others else ()):
        stopped.append(_stopped(now))
    for address in [
        each.address for each in others if str(each.address) not in {facts["address"] for facts in stopped}
    ]:
        known = helpers.running()
        try:
            pid = _stop_and_wait(address, _quit if now else _request_stop)
        except JitserverError as error:
            failed += [str(error)] if address.is_held() else []
        else:
            stopped.append({"pid": pid, "address": str(address), **_end_helpers(pid, known)})
    lines = "\n".join(_line("stopped", facts) for facts in stopped)
    report({"result": "stopped", "daemons": stopped}, lambda: click.echo(lines))
    if failed:
        raise click.ClickException("\n".join(failed))


def _stopped(now: bool) -> dict[str, Any]:
    """Stop this shell's daemon; return what was stopped.

    Raises:
        DaemonUnavailable: none runs.
    """
    unit, known = installed(), helpers.running()
    if not now:
        _print_waits()
    if unit is not None and systemctl.is_active(unit):
        facts = _facts(unit)
        if now:
            systemctl.stop(unit, waits=False)
            # The daemon may have exited by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(facts["pid"], signal.SIGQUIT)
        systemctl.stop(unit)
        facts |= _end_helpers(facts["pid"], known)
        if unit.user is None:
            from jitserver.daemon.checkpoint.manifests import forget_sessions  # importing it takes 20 ms

            # The daemon saved its sessions, because it cannot distinguish systemd's stop from a restart.
            forget_sessions(str(unit.address))
        return facts
    address = local_address()
    try:
        pid = _stop_and_wait(address, _quit if now else _request_stop)
    except DaemonUnavailable:
        _end_helpers(0, known)
        raise
    return {"pid": pid, "address": str(address), **_end_helpers(pid, known)}


@click.command()
@json_option
def restart() -> None:
    """Restart the daemon, or start one.

    The new daemon restores the arrays of running programs. Exits with 1 if named arrays are lost.
    """
    before, unit = _names(), installed()
    if unit is not None:
        stop_unmanaged_daemon(unit)
        systemctl.start(unit, "restart")
        facts = _facts(unit)
    else:
        address = local_address()
        facts = {"pid": launched(address, first=lambda: _stop_daemon(address)), "address": str(address)}
    lost = sorted(before - _names()) if before else []
    _report("restarted", **facts, **({"lost": lost} if lost else {}))
    if lost:
        raise click.ClickException(f"{', '.join(lost)}: these named arrays are lost; `jitserver arrays ls` says why")


@click.command()
@click.option("-n", "--lines", default=50, show_default=True, help="How many lines from the end.")
@json_option
def logs(lines: int) -> None:
    """Print the end of the daemon's log."""
    unit = installed()
    if unit is not None:
        source, text = {"unit": unit.service}, systemctl.journal(unit, lines)
    else:
        path = launch.log_path(local_address())
        if not path.exists():
            raise DaemonUnavailable(f"there is no log at {path}")
        source, text = {"path": str(path)}, path.read_text(errors="replace").splitlines()[-lines:]
    report({**source, "lines": text}, lambda: click.echo("\n".join(text)))


def launched(
    address: "Address | SshAddress", idle_exit: float | None = None, first: Callable[[], None] | None = None
) -> int | None:
    """Start a daemon unless one is running (see `launch.start`); return its process id if this call started it."""
    sock: socket.socket
    try:
        if isinstance(address, Address):
            sock, pid = launch.start(address, idle_exit, first)
        else:
            sock, pid = address.connect(start=True)
    except DaemonUnavailable as error:  # not status 3, because starting the daemon failed
        raise click.ClickException(str(error)) from error
    sock.close()
    return pid


def stop_unmanaged_daemon(unit: Target) -> None:
    """Stop a daemon that was started without systemd at the address of the unit."""
    if unit.user is None and not systemctl.is_active(unit, unit.socket):
        _stop_daemon(unit.address)


def _stop_daemon(address: Address) -> None:
    """Stop the daemon at the address, if one is running, so that the next one restores its sessions."""
    with contextlib.suppress(DaemonUnavailable):
        _stop_and_wait(address, _terminate)


def _names() -> set[str]:
    """Return the names that hold arrays; empty if no daemon answers."""
    chosen = settings()._replace(timeout=min(settings().timeout, _NAMES_SECONDS))
    try:
        found: Holdings = handshake.ask_once(chosen, Verb.ARRAYS, None, Holdings)
    # A daemon that hangs, or is of another version, can still be restarted.
    except JitserverError:
        return set()
    return {one.name for one in found.kept if not one.why_lost}


def _facts(unit: Target) -> dict[str, Any]:
    return {"pid": systemctl.main_pid(unit), "address": str(unit.address), "unit": unit.service}


def _request_stop(address: Address) -> int:
    """Request that the daemon exits without saving its sessions; return its process id."""
    with address.connect() as sock:
        pid = _daemon_pid(address, sock)
    handshake.ask_once(settings()._replace(address=str(address)), Verb.STOP, None, None)
    return pid


def _print_waits() -> None:
    """Print what a stop will wait for, and how long at most, if calls or compilations are running."""
    chosen = settings()._replace(timeout=min(settings().timeout, _NAMES_SECONDS))
    try:
        found: Snapshot = handshake.ask_once(chosen, Verb.SNAPSHOT, None, Snapshot)
    # A daemon that hangs, or is of another version, can still be stopped.
    except JitserverError:
        return
    work = [f"{making.phase} {making.label} for {seconds(making.seconds)}" for making in found.making]
    work += [f"running {run.label or 'a call'} for {seconds(run.seconds)}" for run in found.running]
    if work:
        click.echo(
            f"waiting for the daemon (pid {found.status.pid}), {', '.join(work)}: at most "
            f"{seconds(found.status.drain_seconds)}. `jitserver stop --now` does not wait.",
            err=True,
        )


def _quit(address: Address) -> int:
    """Request that the daemon exits at once, also if it is stopping already; return its process id."""
    if not address.is_held():
        address.connect().close()  # raises the reason
    try:
        pid = int(address.lock_path.read_text())
    except (OSError, ValueError):
        with address.connect() as sock:
            pid = peer(sock).pid
    os.kill(pid, signal.SIGQUIT)
    return pid


def _terminate(address: Address) -> int:
    """Request that the daemon exits and saves its sessions for the next one; return its process id."""
    with address.connect() as sock:
        pid = _daemon_pid(address, sock)
        if peer(sock).pid not in (0, pid):
            raise DaemonLost(
                f"the process that listens at {address} is not the daemon (pid {pid}) that holds {address.lock_path}"
            )
        os.kill(pid, signal.SIGTERM)
        return pid


def _daemon_pid(address: Address, sock: socket.socket) -> int:
    """Return the process id in the lock file; if there is none, as on a full disk, that of the listening process."""
    with contextlib.suppress(OSError, ValueError):
        return int(address.lock_path.read_text())
    return peer(sock).pid


def _stop_and_wait(address: Address, request: Callable[[Address], int]) -> int:
    """Stop a daemon, perhaps of another version; return its process id after it has released its address."""
    pid = request(address)
    polling = Polling(_STOP_SECONDS)
    while address.is_held():
        if not polling.pause():
            raise DaemonLost(f"the daemon (pid {pid}) did not exit within {_STOP_SECONDS:.0f} s")
    return pid


def _end_helpers(daemon: int, known: list[helpers.RunningHelper]) -> dict[str, list[int]]:
    """Wait for the exit of the helpers of `jitserver run` that have this daemon, or none."""
    ended = helpers.end_with(daemon, known, _HELPER_SECONDS)
    return {"helpers": ended} if ended else {}


def _report(what: str, **facts: Any) -> None:
    report({"result": what, **facts}, lambda: click.echo(_line(what, facts)))


def _line(what: str, facts: dict[str, Any]) -> str:
    words = {name: " ".join(map(str, value)) if isinstance(value, list) else value for name, value in facts.items()}
    return f"{what}: " + ", ".join(f"{name} {value}" for name, value in words.items())
