"""The command `jitserver warm`: runs a program in the background, at low priority, so that its programs are made."""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from jitclient.core.notices import is_terminal
from jitclient.core.settings import settings
from jitclient.session.launch import IDLE_EXIT_SECONDS
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, json_option, report, seconds, selected_address
from jitserver.cli.lifecycle import launched
from jitserver.cli.programs import existing
from jitserver.run import front, record
from jitserver.run.request import Command
from jitserver.runner import background, notebook
from jitserver.runner.command import jitserver
from jitserver.runner.interrupts import interrupted_by_signals

_LOG = "--log="
_SHOWN_LINES = 20


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[--wait] [--seconds N] [--json] [OPTIONS OF RUN]",
)
@click.option("--wait", is_flag=True, help="Wait for the end, and exit with the status of the program.")
@click.option(
    "--seconds",
    "limit",
    type=click.FloatRange(min=0),
    metavar="N",
    help="End the program after this time, which counts as success.",
)
@click.option(_LOG.rstrip("="), hidden=True)
@json_option
@click.argument(
    "words",
    metavar="(notebook.ipynb | script.py | script | -m module) [argument ...]",
    nargs=-1,
    type=click.UNPROCESSED,
)
def warm(wait: bool, limit: float | None, log: str | None, words: tuple[str, ...]) -> None:
    """Run a program in the background so that the daemon makes its programs, which later runs find.

    The program really runs: it writes the files that it always writes. It has the lowest priority, no input, and writes
    its output into a log file. The daemon compiles at its own priority.
    """
    command = existing(words)
    if _is_notebook(command):
        notebook.check_packages()
    if not settings().autostart:
        # Raises the reason if there is no daemon.
        ask(Verb.STATUS, None, Status)
    path = Path(log) if log is not None else background.log_path(words)
    if log is None:
        path.write_bytes(b"")
    if wait:
        _run(command, words, limit, path)
    else:
        _start(words, limit, path)


def _start(words: Sequence[str], limit: float | None, path: Path) -> None:
    """Start this command in the background, where it waits for the program."""
    options = ["--wait", f"{_LOG}{path}", *([f"--seconds={limit}"] if limit is not None else [])]
    with open(path, "ab") as file:
        process = background.start(jitserver("warm", *options, *words), file)
    report(
        {"pid": process.pid, "log": str(path)},
        lambda: click.echo(f"warming {' '.join(words)} in the background: pid {process.pid}, log {path}"),
    )


def _run(command: Command, words: Sequence[str], limit: float | None, path: Path) -> None:
    """Run the program, print what it made, and exit with its status."""
    if settings().autostart:
        # Before the priority is lowered, which a daemon that the program starts would inherit.
        launched(selected_address(), IDLE_EXIT_SECONDS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="jitserver-warm-") as folder, interrupted_by_signals():
        directory = Path(folder)
        record.create(directory)
        background.lower_priority()
        with open(path, "ab") as file:
            process = background.start(_words(command, words, folder), file, {"JITSERVER_AUTOSTART": "0"})
        with _progress(f"warming {command.name}: pid {process.pid}, log {path}"):
            why = background.wait(process, limit)
        counts = background.counts(record.report(directory))
    status = 0 if why == "time" else _status(process)
    result = {
        "status": status,
        "ended_by": why or "program",
        "seconds": time.monotonic() - began,
        "log": str(path),
        "programs": counts._asdict() if counts is not None else None,
    }
    report(result, lambda: _print(command, result, counts))
    if status and why != "interrupt" and is_terminal():
        click.echo("\n".join(path.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]), err=True)
    sys.exit(status)


def _is_notebook(command: Command) -> bool:
    return not command.is_module and command.name.endswith(".ipynb")


def _words(command: Command, words: Sequence[str], folder: str) -> list[str]:
    """Return the command line of the program. A helper's child would have the priority of the helper."""
    if _is_notebook(command):
        return [sys.executable, "-P", "-m", notebook.__name__, command.name, folder, *command.packages]
    return jitserver("run", "--fresh", f"{front.RECORD}{folder}", *words)


def _status(process: "subprocess.Popen[bytes]") -> int:
    """Return the exit status as a shell has it."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _print(command: Command, result: dict[str, Any], counts: background.Counts | None) -> None:
    ends = {
        "time": "was ended after",
        "interrupt": "was interrupted after",
        "program": f"failed with status {result['status']} after" if result["status"] else "ended after",
    }
    made = "programs are not known: it ended without a report"
    if counts is not None:
        made = f"{counts.made:,} made, {counts.found:,} found"
        made += f", {counts.made_again:,} made again" if counts.made_again else ""
        made += f"; {counts.in_process:,} functions ran in its own process" if counts.in_process else ""
        made = f"programs: {made}"
    click.echo(f"{command.name} {ends[result['ended_by']]} {seconds(result['seconds'])}; {made}")
    if result["status"]:
        click.echo(f"its output is in {result['log']}")


@contextlib.contextmanager
def _progress(text: str) -> Iterator[None]:
    """Show a line while the program runs, on a terminal."""
    if not is_terminal():
        yield
        return
    from rich.console import Console  # slow to import

    with Console(stderr=True).status(text):
        yield
