"""Runs of a program, one whenever a file that it uses is saved."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jitclient.core.notices import print_notice
from jitclient.errors import MissingPackage
from jitserver.run import front, record
from jitserver.runner import command
from jitserver.runner.affected import consequences, programs_in, used
from jitserver.runner.files import Saved, WatchedFiles
from jitserver.runner.interrupts import interrupted_by_signals

_GRACE_SECONDS = 10.0
_MAX_GROUPING_MS = 1600
_RUNNING_TICK_MS = 200
_IDLE_TICK_MS = 2000

_Watch = Callable[..., Iterator[Any]]


class Watch:
    """Program that runs again whenever a file that it uses is saved."""

    def __init__(
        self, words: Sequence[str], script: str, debounce_ms: int, grace_seconds: float = _GRACE_SECONDS
    ) -> None:
        """Prepare the first run.

        Args:
            words: the program, with options and arguments, as for `jitserver run`.
            script: path of the script; empty for a module.
            debounce_ms: milliseconds without a further change after which a save counts as complete.
            grace_seconds: seconds after which a run that was interrupted is killed.

        Raises:
            MissingPackage: watchfiles is not installed.
        """
        self._watch = _watch_function()
        self._words = words
        self._script = [os.path.realpath(script)] if script else []
        self._debounce_ms = debounce_ms
        self._grace_seconds = grace_seconds
        self._files = WatchedFiles(self._script)
        self._programs = programs_in(b"")
        self._terminal = _terminal_settings()

    def run(self) -> int:
        """Run the program until the user ends it; return the status of the last run, as `subprocess` has it."""
        with tempfile.TemporaryDirectory(prefix="jitserver-watch-") as folder, interrupted_by_signals():
            directory = Path(folder)
            while True:
                record.create(directory)
                process = subprocess.Popen(command.jitserver("run", f"{front.RECORD}{folder}", *self._words))
                try:
                    saved = self._until_saved(process, directory)
                    self._end(process, is_told=False)
                    self._note_programs(process, directory)
                    self._announce(saved)
                except KeyboardInterrupt:
                    with contextlib.suppress(KeyboardInterrupt):
                        self._end(process, is_told=_has_terminal())
                    return process.returncode

    def _until_saved(self, process: subprocess.Popen[bytes], directory: Path) -> list[Saved]:
        """Return the saved files; the run may have ended before.

        Raises:
            KeyboardInterrupt: the user has ended the run.
        """
        is_running = True
        while True:
            folders = self._files.directories()
            for events in self._events(folders, _RUNNING_TICK_MS if is_running else _IDLE_TICK_MS):
                was_running, is_running = is_running, process.poll() is None
                self._files.add(record.files(directory))
                # The program itself may write its files again as they were.
                saved = self._files.saved(is_settled=bool(events), with_equal=not was_running)
                if saved:
                    return saved
                if was_running and not is_running:
                    self._note_end(process, directory)
                if was_running != is_running or folders != self._files.directories():
                    break

    def _events(self, folders: list[str], tick_ms: int) -> Iterator[Any]:
        """Yield whenever something in the directories changes, and at each tick."""
        yield from self._watch(
            *folders,
            watch_filter=None,
            step=self._debounce_ms,
            debounce=max(_MAX_GROUPING_MS, 8 * self._debounce_ms),
            rust_timeout=tick_ms,
            yield_on_timeout=True,
            recursive=False,
        )

    def _note_end(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        """Forget files that a run no longer uses, and say that it has ended.

        Raises:
            KeyboardInterrupt: the user has interrupted the run. On its terminal, only the run gets that signal.
        """
        if process.returncode == -signal.SIGINT:
            raise KeyboardInterrupt
        if process.returncode == 0:
            self._files.keep([*self._script, *(used.path for used in record.files(directory))])
        how = f"status {process.returncode}" if process.returncode >= 0 else signal.Signals(-process.returncode).name
        number = len(self._files)
        print_notice(f"ended with {how}. Save {'its file' if number == 1 else f'one of its {number} files'} to run it")

    def _note_programs(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        """Keep the programs that a run used; one that failed may not have come to all of them."""
        found = programs_in(record.report(directory))
        self._programs = found if process.returncode == 0 else {**self._programs, **found}

    def _announce(self, saved: list[Saved]) -> None:
        """Print what changed, and what that means for the programs of the last run."""
        print_notice(f"changed: {'; '.join(map(str, saved))}")
        names = [names for one in saved for names in one.names]
        may_change_all = any(one.may_change_all for one in saved)
        text = consequences([used(row) for row in self._programs.values()], names, may_change_all)
        if text:
            print_notice(f"programs: {text}")

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
                self._kill(process)
            except KeyboardInterrupt:
                # The run has the same signal from the terminal, and may handle it.
                if not is_told:
                    self._kill(process)
                    raise

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        if self._terminal is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, self._terminal)


def _watch_function() -> _Watch:
    try:
        from watchfiles import watch
    except ImportError as error:
        raise MissingPackage("jitserver watch needs watchfiles. Run `pip install 'jitserver[watch]'`.") from error
    function: _Watch = watch
    return function


def _terminal_settings() -> list[Any] | None:
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError, termios.error):
        return None


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal, whose keys send signals to the run as well."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
