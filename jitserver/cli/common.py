"""Functions shared by all commands: connection to the daemon, and output as text or JSON."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec

from jitclient.core.settings import settings
from jitclient.errors import DaemonUnavailable, JitserverError
from jitclient.session import handshake
from jitclient.wire.address import Address, default_addresses, remote
from jitclient.wire.labels import seconds as seconds
from jitclient.wire.labels import size as size
from jitclient.wire.messages import Verb
from jitserver.cli.remote_commands import COMMAND_LINE
from jitserver.cli.systemd.target import installed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from jitclient.wire.ssh import SshAddress
    from jitserver.run.helpers import RunningHelper

NOT_RUNNING = 3
"""Exit status of a command that needs a daemon if none is running (the same as systemctl's)."""

Command = Callable[..., Any]
Item = TypeVar("Item")

_JSON = "jitserver.json"
_REPORTED = "jitserver.reported"


def json_option(command: Command) -> Command:
    """Add the option `--json` to a command, for `report` and `wants_json`."""

    def note(context: click.Context, _: click.Parameter, value: bool) -> None:
        context.meta[_JSON] = value

    option = click.option("--json", is_flag=True, expose_value=False, callback=note, help="Print JSON, for programs.")
    return option(command)


def wants_json() -> bool:
    """Return whether the running command was given `--json`."""
    return bool(click.get_current_context().meta.get(_JSON))


def number(count: int, noun: str) -> str:
    """Return a count with its noun: `1 program`, `2 programs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def report(value: Any, show: Callable[[], object]) -> None:
    """Print the result of a command: `value` as JSON with `--json`; otherwise call `show`, which prints text."""
    context = click.get_current_context()
    context.meta[_REPORTED] = True
    if wants_json():
        print_json(value)
    else:
        show()


def local_address() -> Address:
    """Return the address at which a daemon is started: JITSERVER_ADDRESS, or the user's default."""
    return default_addresses(settings().address)[0]


def selected_address() -> "Address | SshAddress":
    """Return the selected address: an address on another machine, or else `local_address()`."""
    return remote(settings().address) or local_address()


def ask(verb: Verb, message: Any, answer: Any) -> Any:
    """Send a request to the running daemon, over a connection without a session, and return the answer.

    Raises:
        DaemonUnavailable: no daemon is running. A command that does not catch this exits with status 3.
    """
    unit = installed()
    if unit is not None:
        from jitserver.cli.systemd import systemctl  # imports subprocess

        if systemctl.waits(unit):  # connecting would start the daemon
            raise DaemonUnavailable(f"systemd starts {unit.service} at the first call")
    return handshake.ask(settings(), verb, message, answer)


def fail(error: JitserverError | click.ClickException) -> NoReturn:
    """Report the failure of a command, and exit. With `--json`, print one object, unless there is a result already."""
    what, text, status, facts = "Error", str(error), 1, {}
    kind: type[BaseException] = type(error)
    if isinstance(error, click.ClickException):
        text, status = error.format_message(), error.exit_code
        # A command may give an error of ours another status.
        kind = type(error.__cause__ or error)
    elif isinstance(error, DaemonUnavailable):
        what, status, facts = "jitserver is not running", NOT_RUNNING, {"running": False, "address": _address()}
    if _wants_error_as_json(error):
        print_json({"error": text, "type": kind.__name__, "status": status, **facts})
    elif isinstance(error, click.ClickException):
        error.show()
    else:
        click.echo(f"{what}: {text}", err=True)
    sys.exit(status)


def _wants_error_as_json(error: Exception) -> bool:
    meta = click.get_current_context().meta
    if isinstance(error, click.UsageError) and error.ctx is not None:
        # Raised before or while the option was parsed.
        has_option = any("--json" in option.opts for option in error.ctx.command.params)
        return has_option and "--json" in meta[COMMAND_LINE]
    return bool(meta.get(_JSON)) and not meta.get(_REPORTED)


def _address() -> str:
    try:
        return str(selected_address())
    except (JitserverError, OSError):  # there is no usable address
        return ""


def track(items: Iterable[Item], what: str) -> Iterator[Item]:
    """Yield items, with a progress bar on a terminal."""
    if not sys.stderr.isatty() or wants_json():
        yield from items
        return
    from rich.console import Console  # takes 40 ms, rarely needed
    from rich.progress import track

    yield from track(items, what, console=Console(stderr=True), transient=True)


def print_json(value: Any) -> None:
    """Print JSON on stdout; messages become objects with named fields."""
    import json  # imported here, because text output does not need it

    # Indent with msgspec: json's own indenting takes seconds for a large cache.
    text = json.dumps(value, default=msgspec.structs.asdict)
    click.echo(msgspec.json.format(text, indent=2))


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table as text, folded if it is too wide for the terminal."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    header, *lines = ["  " + "   ".join(map(str.ljust, row, widths)).rstrip() for row in (columns, *rows)]
    width = 2 + sum(widths) + 3 * (len(widths) - 1)
    is_plain = all(cell.isascii() and cell.isprintable() for row in (columns, *rows) for cell in row)
    if is_plain and sys.stdout.encoding.lower().startswith("utf") and _fits(width + 2):
        click.echo("\n".join(["", click.style(header, bold=True), " " + "─" * width, *lines, ""]))
    else:  # importing rich takes as long as a short command
        console().print(table("", columns, rows), markup=False)


def _fits(width: int) -> bool:
    if not sys.stdout.isatty():
        return True
    import shutil  # expensive to import

    return width <= shutil.get_terminal_size().columns


def table(title: str, columns: list[str], rows: list[list[str]]) -> "Table":
    """Return a table in the style of all commands."""
    from rich import box
    from rich.table import Table

    made = Table(*columns, title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for row in rows:
        made.add_row(*row)
    return made


def console() -> "Console":
    """Return a console on stdout, which cuts lines only if stdout is a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def ago(moment: float) -> str:
    """Return the time elapsed since a moment as text: `3 min ago`."""
    return seconds(max(0.0, time.time() - moment)) + " ago"


def client_process(pid: int) -> str:
    """Return a client's process id as text; "remote" for a client on another machine."""
    return str(pid) if pid else "remote"


def helpers_line(running: Iterable["RunningHelper"]) -> str:
    """Describe the helpers of `jitserver run` in a line, with memory and age."""
    return "; ".join(
        f"pid {each.pid}, {size(each.memory_bytes)}, up {seconds(each.age_s)}, last run {seconds(each.idle_s)} ago"
        for each in running
    )
