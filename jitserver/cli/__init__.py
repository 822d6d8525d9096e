"""The command line, an ordinary client of the daemon. Only the command `serve` imports jax."""

import importlib
import io
import sys
from typing import Any, NoReturn

import click

from jitclient.errors import JitserverError
from jitclient.version import __version__
from jitserver.cli.remote_commands import COMMAND_LINE, address_option, with_address

_COMMANDS = {
    "arrays": "arrays",
    "cache": "cache",
    "connect-stdio": "connect_stdio",
    "demo": "demo",
    "doctor": "doctor",
    "install": "install",
    "logs": "lifecycle",
    "pool-worker": "pool_worker",
    "purge": "purge",
    "restart": "lifecycle",
    "run": "run",
    "serve": "serve",
    "share": "share",
    "start": "lifecycle",
    "status": "status",
    "stop": "lifecycle",
    "uninstall": "install",
    "watch": "watch",
}


class _Commands(click.Group):
    """The group of commands, which imports a command's module only when the command is used, for a quick start."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"jitserver.cli.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return with_address(command)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[COMMAND_LINE] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (JitserverError, click.ClickException) as error:
            return _fail(error)
        except OSError as error:
            if error.filename is None:
                raise
            # The system refuses a file of the user's: it is read-only, the disk is full, or the like.
            return _fail(click.ClickException(str(error)))


def _fail(error: JitserverError | click.ClickException) -> NoReturn:
    from jitserver.cli.common import fail  # imported here, for a quick start

    fail(error)


@click.group(cls=_Commands, context_settings={"auto_envvar_prefix": "JITSERVER", "help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="jitserver")
@click.pass_context
def main(context: click.Context) -> None:
    """Keep JAX functions compiled, and their arrays on the accelerator, between runs of your program.

    Exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon is running.
    """
    if context.invoked_subcommand != "run" and isinstance(sys.stdout, io.TextIOWrapper):
        # Names and paths may contain characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")


main.params.append(address_option())
