"""The option `--address` of every command. For an address on another machine, the command runs there, through ssh."""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from jitclient.core.settings import settings
from jitclient.errors import DaemonUnavailable
from jitclient.wire.address import remote

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

COMMAND_LINE = "jitserver.words"
"""Key in a context's `meta` of the command line's words, without the name of the program."""

_OPTION = "--address"
_LOCAL_COMMANDS = (
    "connect-stdio",
    "demo",
    "doctor",
    "pool-worker",
    "run",
    "serve",
    "watch",
)
"""Commands that run on this machine, whatever the address is."""

_SSH_FAILED, _NO_SUCH_COMMAND = 255, 127


def with_address(command: click.Command) -> click.Command:
    """Add the option to a command, or to all commands of a group, unless a command already has it."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            with_address(one)
    elif not any(_OPTION in option.opts for option in command.params):
        command.params.append(address_option())
        if command.name not in _LOCAL_COMMANDS and command.callback is not None:
            command.callback = _run_at_address(command.callback)
    return command


def address_option() -> click.Option:
    """Return a new `--address` option for one command."""
    return click.Option(
        [_OPTION],
        metavar="ADDRESS",
        expose_value=False,
        is_eager=True,
        callback=_use,
        help="Address of the daemon: unix:PATH, or ssh://user@host/environment. [default: JITSERVER_ADDRESS, or yours]",
    )


def _use(_: click.Context, __: click.Parameter, address: str | None) -> None:
    if address is not None:
        os.environ.update(JITSERVER_ADDRESS=address)  # also for programs that the command starts
        settings.cache_clear()


def _run_at_address(callback: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(callback)
    def run(*arguments: Any, **options: Any) -> Any:
        remote_address = remote(settings().address)
        if remote_address is None:
            return callback(*arguments, **options)
        return _run_remotely(remote_address, _without_address(click.get_current_context().meta[COMMAND_LINE]))

    return run


def _run_remotely(remote_address: "SshAddress", words: Iterator[str]) -> None:
    """Run a command on the other machine, connected to this terminal, and exit with its status."""
    import subprocess  # imported here, because few commands need it

    command = remote_address.command("jitserver", *words, terminal=sys.stdin.isatty() and sys.stdout.isatty())
    status = subprocess.run(command, check=False).returncode
    if status in (_SSH_FAILED, _NO_SUCH_COMMAND):
        test = remote_address.shown("jitserver", "--version")
        raise DaemonUnavailable(f"the command on the other machine failed (see above). `{test}` must work.")
    sys.exit(status)


def _without_address(words: list[str]) -> Iterator[str]:
    left = iter(words)
    for word in left:
        if word == _OPTION:
            next(left, None)
        elif not word.startswith(f"{_OPTION}="):
            yield word
