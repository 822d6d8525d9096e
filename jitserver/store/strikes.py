"""Strikes: each program that was in progress when a daemon died gets one. A program with three strikes is refused.

A daemon that was killed from outside most likely died for another reason than the program. Several such deaths in a row
count as one strike, because some crashes leave no sign: the overflow of the stack of a thread of XLA, or C's `exit`.
"""

import contextlib
import datetime
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from jitclient.core import file_lock
from jitclient.core.file_stamp import FileStamp, file_stamp
from jitserver.store import checked_files
from jitserver.store.checked_files import Corrupt

log = logging.getLogger(__name__)

MAX_STRIKES = 3
"""Number of strikes at which a program is refused."""

KILLS_PER_STRIKE = 3
"""Number of deaths without a sign of a crash that count as one strike."""

DRY_RUN = "dry-running"
"""Phase of dry runs, which no client requested: their strikes prevent further dry runs, but no calls."""

_FILE = "strikes"
_MAX_SUSPECTS = 1000
_TIMES = {1: "once", 2: "twice"}
_VERBS = {False: "crashed", True: "was killed"}


class Work(NamedTuple):
    """The activity of a daemon's thread: a phase (tracing, compiling, running, ...) of a program."""

    phase: str
    key: str
    label: str


class Strike(msgspec.Struct, frozen=True):
    """The record that a daemon died during a phase of a program."""

    phase: str
    when: float  # seconds since the epoch
    killed: bool = False  # without a sign of a crash


class Suspect(msgspec.Struct, frozen=True):
    """A program that has strikes, with its label."""

    label: str
    strikes: tuple[Strike, ...]

    @property
    def name(self) -> str:
        """The name of the program's function."""
        return self.label.partition("(")[0]

    @property
    def of_calls(self) -> list[Strike]:
        """The strikes that concern calls, not dry runs."""
        return [strike for strike in self.strikes if strike.phase != DRY_RUN]

    @property
    def counted(self) -> int:
        """The number of strikes that count towards the refusal of calls."""
        return _count(self.of_calls)

    def count(self, phase: str) -> int:
        """Return the number of strikes that count for a phase."""
        return _count([strike for strike in self.strikes if strike.phase == phase])


def _count(strikes: list[Strike]) -> int:
    kills = sum(strike.killed for strike in strikes)
    return len(strikes) - kills + kills // KILLS_PER_STRIKE


class Strikes:
    """The strikes of one cache directory, shared by all daemons that use it. Thread-safe.

    If the file cannot be written, changes apply to this process only, after one warning.

    Args:
        directory: the directory of the file; None: strikes are in memory only.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._suspects: dict[str, Suspect] = {}  # the most recent last
        self._seen: FileStamp = None  # of the file at the last read
        self._lock = threading.Lock()
        self._warned = False

    def all(self) -> dict[str, Suspect]:
        """Return the programs with strikes, by key; the most recent comes last."""
        with self._lock:
            self._refresh()
            return dict(self._suspects)

    def of(self, key: str) -> Suspect | None:
        """Return the strikes of a program, or None."""
        return self.all().get(key)

    def count(self, key: str, phase: str) -> int:
        """Return the number of strikes of a program that count for a phase."""
        suspect = self.of(key)
        return suspect.count(phase) if suspect is not None else 0

    def has(self, key: str, phase: str) -> bool:
        """Return whether daemons died during a phase of a program, whether or not that counts."""
        suspect = self.of(key)
        return suspect is not None and any(strike.phase == phase for strike in suspect.strikes)

    def refusal(self, key: str) -> str:
        """Return the reason why a program is refused, and the remedy; empty if it is not refused."""
        suspect = self.of(key)
        if suspect is None or suspect.counted < MAX_STRIKES:
            return ""
        strikes = suspect.of_calls
        how = ", and ".join(filter(None, (_described(strikes, killed) for killed in _VERBS)))
        last = datetime.datetime.fromtimestamp(strikes[-1].when).isoformat(" ", "seconds")
        return (
            f"the daemon refuses {suspect.label} after it {how}, last at {last}. "
            f"Change the function; or, if the crashes had another cause, run `jitserver cache rm {key[:12]}`"
        )

    def add(self, interrupted: Iterable[Work], when: float, killed: bool = False) -> bool:
        """Give a strike to each program that was in progress when a daemon died.

        Args:
            interrupted: the activities of the dead daemon's threads.
            when: the time, in seconds since the epoch.
            killed: whether the daemon was killed from outside, as far as can be known.

        Returns:
            Whether the strikes were saved to the file.
        """

        def strike(suspects: dict[str, Suspect]) -> None:
            for work in {work.key: work for work in interrupted}.values():
                earlier = suspects.pop(work.key, Suspect(work.label, ()))
                suspect = Suspect(work.label, (*earlier.strikes, Strike(work.phase, when, killed)))
                suspects[work.key] = suspect
                log.warning(
                    "a daemon %s while %s %s (program %s): strike %d of %d",
                    *(_VERBS[killed], work.phase, work.label, work.key[:12], suspect.counted, MAX_STRIKES),
                )
            for oldest in list(suspects)[:-_MAX_SUSPECTS]:
                del suspects[oldest]

        return self._change(strike)

    def forgive(self, key: str, phase: str) -> None:
        """Remove the strikes of a program for a phase that has now succeeded: the crash had a different cause."""

        def forgive(suspects: dict[str, Suspect]) -> None:
            left = [strike for strike in suspects[key].strikes if strike.phase != phase] if key in suspects else []
            if left:
                suspects[key] = Suspect(suspects[key].label, tuple(left))
            else:
                suspects.pop(key, None)

        if self.has(key, phase):
            self._change(forgive)

    def clear(self, prefix: str) -> dict[str, Suspect]:
        """Remove all strikes of the programs whose key starts with `prefix`, or whose function has that name.

        Returns:
            The programs that had strikes, by key.
        """
        cleared: dict[str, Suspect] = {}

        def clear(suspects: dict[str, Suspect]) -> None:
            for key in [key for key, it in suspects.items() if key.startswith(prefix) or it.name == prefix]:
                cleared[key] = suspects.pop(key)

        if self.all():
            self._change(clear)
        return cleared

    # ---- the file

    def _change(self, edit: Callable[[dict[str, Suspect]], None]) -> bool:
        with self._lock, self._locked():
            self._refresh()
            edit(self._suspects)
            return self._save()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against other daemons."""
        with contextlib.ExitStack() as stack:
            if self._directory is not None:
                # If the lock file cannot be opened, the strikes cannot be written either, and `_save` warns.
                with contextlib.suppress(OSError):
                    file_lock.lock(stack.enter_context(open(self._directory / "strikes.lock", "a")))
            yield

    def _refresh(self) -> None:
        """Read the file if it was written or removed since the last read."""
        if self._directory is None:
            return
        path = self._directory / _FILE
        seen = file_stamp(path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._suspects = msgspec.json.decode(checked_files.read(path), type=dict[str, Suspect]) if seen else {}
        except (OSError, Corrupt, msgspec.MsgspecError) as error:
            log.warning("strikes: the records of earlier crashes cannot be read (%s). They are discarded.", error)
            self._suspects = {}

    def _save(self) -> bool:
        if self._directory is None:
            return False
        try:
            checked_files.write(self._directory / _FILE, [msgspec.json.encode(self._suspects)])
            self._seen = file_stamp(self._directory / _FILE)
        except OSError as error:
            if not self._warned:
                log.warning("strikes: cannot be saved (%s). They are lost when this daemon exits.", error)
            self._warned = True
            return False
        return True


def _described(strikes: list[Strike], killed: bool) -> str:
    """Describe how often the daemon crashed, or was killed, in each phase: "crashed twice while tracing it"."""
    counts = Counter(strike.phase for strike in strikes if strike.killed is killed).items()
    phases = " and ".join(f"{_TIMES.get(count, f'{count} times')} while {phase} it" for phase, count in counts)
    return f"{_VERBS[killed]} {phases}" if phases else ""
