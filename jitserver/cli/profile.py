"""The command `jitserver profile`: records what the daemon does, for XProf and Perfetto."""

import time
from pathlib import Path

import click

from jitclient.core.settings import settings
from jitclient.profiles import run_directory
from jitclient.profiles.recording import Recording
from jitclient.wire.address import remote
from jitclient.wire.introspection import SessionInfo, Snapshot, Top
from jitclient.wire.messages import Verb
from jitclient.wire.recording import Record
from jitserver.cli.common import ask, json_option, report
from jitserver.system.process_watch import program_of


@click.command()
@click.argument("target", default="-")
@click.option("--seconds", type=click.FloatRange(min=0), default=5.0, show_default=True, help="Record for this long.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="FOLDER",
    help="Write to this log directory, as `jax.profiler.trace` does. [default: the working directory]",
)
@json_option
def profile(target: str, seconds: float, output: Path) -> None:
    """Record what the daemon does with XLA's profiler, while programs run.

    TARGET is the process id or a part of the command line of a program that uses the daemon, or `-` for any. The
    profile has all that the daemon does: each call lies in an event that names its function and its client. Ctrl-C ends
    the recording early.

    `jax.profiler.trace` in a program records that program, too.
    """
    if target != "-":
        _check(target)
    recording = Recording(settings(), Record())
    try:
        try:
            time.sleep(seconds)
        except KeyboardInterrupt:
            click.echo("", err=True)
        recording.end()
        parts = recording.parts()
    finally:
        recording.close()
    lost = [part.why for part in parts if part.why]
    if len(lost) == len(parts):
        raise click.ClickException(f"nothing was recorded: {lost[0] if lost else 'the recording is empty'}")
    directory = run_directory.create(output, parts)
    files = sorted(str(path) for path in directory.iterdir())
    report({"directory": str(directory), "files": files, "lost": lost}, lambda: _print(directory, files, lost))


def _check(target: str) -> None:
    """Raise ClickException unless a program of that process id or command line uses the daemon."""
    found: Snapshot = ask(Verb.TOP, Top(), Snapshot)
    if str(found.status.pid) == target:
        return
    if not any(target == str(session.pid) or target in _program(session) for session in found.sessions):
        raise click.ClickException(f"no program {target!r} uses the daemon. `jitserver top` lists those that do.")


def _program(session: SessionInfo) -> str:
    is_here = remote(settings().address) is None
    return session.program or (program_of(session.pid) if is_here else "")


def _print(directory: Path, files: list[str], lost: list[str]) -> None:
    click.echo(f"wrote {directory}:")
    for path in files:
        click.echo(f"  {Path(path).name}")
    for why in lost:
        click.echo(f"A part is missing: {why}", err=True)
    click.echo("Open the trace.json.gz at https://ui.perfetto.dev, or the log directory with XProf or TensorBoard.")
