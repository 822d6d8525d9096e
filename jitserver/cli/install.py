"""The commands `jitserver install` and `uninstall`: the daemon as a systemd service."""

import click

from jitclient.core.settings import settings
from jitclient.errors import SettingsError
from jitclient.wire.address import Address
from jitserver.cli.common import json_option, report, wants_json
from jitserver.cli.lifecycle import stop_unmanaged_daemon
from jitserver.cli.systemd import install as units
from jitserver.cli.systemd.target import Target, selected_target

_system_option = click.option(
    "--system", "user", metavar="USER", help="Use the system's systemd, for USER, instead of your own."
)


@click.command()
@_system_option
@click.option("--dry-run", is_flag=True, help="Print the units without installing them.")
@json_option
def install(user: str | None, dry_run: bool) -> None:
    """Install systemd units for the daemon.

    systemd opens the daemon's socket now, and starts the daemon at the first call. The daemon belongs to this Python
    environment and to the settings of this shell that hold for a whole process (XLA_FLAGS, JAX_PLATFORMS, visible
    devices). Other environments get their own daemon and units.
    """
    target = _target(user)
    if dry_run:
        planned, hindrance = units.preview(target)
        units_by_path = {str(path): text for path, text in planned.items()}
        shown = "\n".join(f"==> {path}\n{text}" for path, text in units_by_path.items())
        report({"result": "planned", "units": units_by_path, "hindrance": hindrance}, lambda: click.echo(shown))
        if hindrance and not wants_json():
            click.echo(f"they cannot be installed here: {hindrance}", err=True)
        return
    planned = units.plan(target)
    stop_unmanaged_daemon(target)
    done = units.install(target, planned)
    _report(done)
    if not wants_json():
        click.echo(f"the first call starts the daemon; `{_command('uninstall', user)}` undoes this")
        if not user:
            click.echo("the daemon stops when you log out, unless you run `loginctl enable-linger`")


@click.command()
@_system_option
@json_option
def uninstall(user: str | None) -> None:
    """Stop the daemon and remove its systemd units."""
    done = units.uninstall(_target(user))
    _report(done)
    if done.kept_for and not wants_json():
        click.echo(f"the unit files stay, because {', '.join(done.kept_for)} use them too")


def _target(user: str | None) -> Target:
    target = selected_target(user)
    named = settings().address
    if named is not None and Address.parse(named) != target.address:
        raise SettingsError(f"JITSERVER_ADDRESS={named!r} is not the address of the unit, {target.address}. Unset it.")
    return target


def _report(done: units.Done) -> None:
    target = done.target
    facts = {
        "result": done.result,
        "address": str(target.address),
        "digest": target.digest,
        "socket": target.socket,
        "service": target.service,
        "files": list(map(str, done.files)),
        "kept_for": list(done.kept_for),
    }
    report(facts, lambda: _print_done(done))


def _print_done(done: units.Done) -> None:
    target = done.target
    click.echo(f"{done.result}: {target.socket} and {target.service}, in {target.directory}")
    if done.result in ("installed", "updated", "unchanged"):
        click.echo(f"the daemon listens at {target.address}")


def _command(name: str, user: str | None) -> str:
    return f"sudo jitserver {name} --system {user}" if user else f"jitserver {name}"
