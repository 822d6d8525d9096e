"""The command `jitserver watch`: runs a program again whenever a file that it uses is saved.

The command has no `--json`, because all output belongs to the program.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from jitclient.capture.user_code.installed import OWN_PACKAGES, is_installed_path
from jitclient.core.file_stamp import FileStamp, file_stamp
from jitclient.core.notices import print_notice
from jitclient.errors import MissingPackage
from jitserver.cli.run import parsed
from jitserver.run import front
from jitserver.run.request import python_options

_DEBOUNCE_MS = 200
_GRACE_SECONDS = 10.0
_MAX_GROUPING_MS = 1600
_RUNNING_TICK_MS = 200
_IDLE_TICK_MS = 2000
_BYTES_OF_NOTES = 1 << 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS OF RUN]",
)
@click.argument("words", metavar="(script.py | script | -m module) [argument ...]", nargs=-1, type=click.UNPROCESSED)
def watch(words: tuple[str, ...]) -> None:
    """Run a program as `jitserver run` does, and again whenever a file that it uses is saved.

    The files are the script and your own modules that it imports. A run that has not ended is interrupted first, as by
    Ctrl-C. Each run says why it made a program. Ctrl-C ends the program and this command.
    """
    command = parsed(words)
    if not command.is_module and not os.path.exists(command.name):
        raise click.UsageError(f"There is no program {command.name!r}.")
    status = Watcher(words, "" if command.is_module else command.name).run()
    sys.stdout.flush()
    if status < 0:
        front.exit_as(-status)
    sys.exit(status)


class _Version(NamedTuple):
    """Version of a file that a run used: its identity, None if the file was missing, and its content."""

    stamp: FileStamp = None
    content: bytes = b""


class Watcher:
    """Program that runs again whenever a file that it uses is saved."""

    def __init__(self, words: Sequence[str], script: str, grace_seconds: float = _GRACE_SECONDS) -> None:
        """Prepare the first run.

        Args:
            words: the program, with options and arguments, as for `jitserver run`.
            script: path of the script; empty for a module.
            grace_seconds: seconds after which a run that was interrupted is killed.

        Raises:
            MissingPackage: watchfiles is not installed.
        """
        try:
            from watchfiles import watch
        except ImportError as error:
            raise MissingPackage("jitserver watch needs watchfiles. Run `pip install 'jitserver[watch]'`.") from error
        self._watch: Callable[..., Iterator[Any]] = watch
        self._words = words
        self._script = {os.path.realpath(script)} if script else set()
        self._grace_seconds = grace_seconds
        self._files: dict[str, _Version] = {}
        self._use(dict.fromkeys(self._script))

    def run(self) -> int:
        """Run the program until the user ends it; return the status of the last run, as `subprocess` has it."""
        # Each run says itself why it made a program.
        variables = {"JITSERVER_REPORT": "lines", **os.environ}
        with tempfile.NamedTemporaryFile(prefix="jitserver-watch-") as notes, _interrupted_by_signals():
            while True:
                notes.truncate(0)
                notes.truncate(_BYTES_OF_NOTES)
                words = _command_line("run", f"{front.FILES}{notes.name}", *self._words)
                process = subprocess.Popen(words, env=variables)
                try:
                    saved = self._until_saved(process, Path(notes.name))
                    self._end(process, is_told=False)
                    print_notice(f"changed: {', '.join(map(os.path.basename, saved))}")
                except KeyboardInterrupt:
                    with contextlib.suppress(KeyboardInterrupt):
                        self._end(process, is_told=_has_terminal())
                    return process.returncode

    def _until_saved(self, process: subprocess.Popen[bytes], notes: Path) -> list[str]:
        """Return the files that were saved; the run may have ended before.

        Raises:
            KeyboardInterrupt: the user has ended the run.
        """
        is_running = True
        while True:
            folders = self._folders()
            for _ in self._events(folders, _RUNNING_TICK_MS if is_running else _IDLE_TICK_MS):
                was_running, is_running = is_running, process.poll() is None
                self._use(_files_in(notes))
                if saved := self._saved(was_running):
                    return saved
                if was_running and not is_running:
                    self._note_end(process, notes)
                if was_running != is_running or folders != self._folders():
                    break

    def _use(self, files: Mapping[str, int | None]) -> None:
        """Add files that a run uses; one that was saved after the time that the run noted counts as saved."""
        for path, mtime_ns in files.items():
            if path not in self._files:
                now = _version(path)
                is_used = now is not None and now.stamp is not None and mtime_ns in (None, now.stamp[2])
                self._files[path] = now if now and is_used else _Version()

    def _folders(self) -> list[str]:
        """Return the existing directories of the files, which also show a file that another one replaces."""
        return sorted({folder for path in self._files if os.path.isdir(folder := os.path.dirname(path))})

    def _events(self, folders: list[str], tick_ms: int) -> Iterator[Any]:
        """Yield whenever something in the directories changes, and at each tick."""
        yield from self._watch(
            *folders,
            watch_filter=None,
            step=_DEBOUNCE_MS,
            debounce=_MAX_GROUPING_MS,
            rust_timeout=tick_ms,
            yield_on_timeout=True,
            recursive=False,
        )

    def _saved(self, is_running: bool) -> list[str]:
        """Return the files that were saved since the last call. A file that is gone may appear again."""
        found = []
        for path, before in self._files.items():
            after = _version(path, before)
            if after is None or after.stamp == before.stamp:
                continue
            self._files[path] = after
            # The program itself may write its files again as they were.
            if after.content != before.content or not is_running:
                found.append(path)
        return found

    def _note_end(self, process: subprocess.Popen[bytes], notes: Path) -> None:
        """Forget files that a run no longer uses, and say that it has ended.

        Raises:
            KeyboardInterrupt: the user has interrupted the run. On its terminal, only the run gets that signal.
        """
        if process.returncode == -signal.SIGINT:
            raise KeyboardInterrupt
        if process.returncode == 0:
            used = self._script | _files_in(notes).keys()
            self._files = {path: version for path, version in self._files.items() if path in used}
        how = f"status {process.returncode}" if process.returncode >= 0 else signal.Signals(-process.returncode).name
        number = len(self._files)
        print_notice(f"ended with {how}. Save {'its file' if number == 1 else f'one of its {number} files'} to run it")

    def _end(self, process: subprocess.Popen[bytes], is_told: bool) -> None:
        """Interrupt a run, and kill it if it does not end; a run that the user has interrupted has its time.

        Raises:
            KeyboardInterrupt: the user does not want to wait; the run is killed.
        """
        if not is_told and process.poll() is None:
            process.send_signal(signal.SIGINT)
        while process.returncode is None:
            try:
                process.wait(None if is_told else self._grace_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
            except KeyboardInterrupt:
                # The run has the same signal from the terminal, and may handle it.
                if not is_told:
                    process.kill()
                    process.wait()
                    raise


def _command_line(*words: str) -> list[str]:
    """Return the command line of a `jitserver` command in this interpreter, started as this process was."""
    script = sys.argv[0]
    # Python puts the directory of the script, not the working directory, in front of `sys.path`.
    started = [script] if os.path.basename(script) == "jitserver" and os.path.isfile(script) else ["-m", "jitserver"]
    return [sys.executable, *python_options(), *started, *words]


def _files_in(notes: Path) -> dict[str, int]:
    """Return the user's files that a run has executed, by its notes, with the times of their last changes then."""
    own = tuple(f"{os.path.dirname(sys.modules[name].__file__ or '')}{os.sep}" for name in OWN_PACKAGES)
    lines = [os.fsdecode(note) for note in notes.read_bytes().partition(b"\0\0")[0].split(b"\0") if note]
    found = {path: int(mtime_ns) for mtime_ns, _, path in (line.partition(" ") for line in lines)}
    return {path: found[path] for path in found if not path.startswith(own) and not is_installed_path(path)}


def _version(path: str, before: _Version | None = None) -> _Version | None:
    """Return the present version of a file, or the one before if it is the same; None if the file cannot be read."""
    with contextlib.suppress(OSError):
        stamp = file_stamp(path)
        return before if stamp and before and before.stamp == stamp else _Version(stamp, Path(path).read_bytes())
    return None


@contextlib.contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in this block for each signal that ends a process.

    SIGINT is among them because a shell starts a background job with that signal ignored.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal, whose keys send signals to the run as well."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
