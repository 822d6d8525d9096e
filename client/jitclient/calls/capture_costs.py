"""Costs of captures that failed or took too long, so that later processes do not pay them again.

A process gives the capture of a function a second. If that is too little, or the function cannot be captured, it is
traced in the process, and the two costs decide how long the next captures may take:

| the capture | next limit |
|---|---|
| was abandoned, and the trace took over twice as long | the time of the trace |
| was abandoned, and the trace took less | a tenth of a second: enough once the function depends on less |
| was abandoned, but the program cannot be sent without it | none |
| failed, after more than a tenth of the time of the trace | a tenth of a second |

A record is a file in the cache directory of the environment. It holds for a day, for functions with the same code,
until a source file of a user module changes. It decides whether a function is captured, never its key.
"""

import contextlib
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from jitclient.capture.budget import Budget
from jitclient.capture.graph.set_order import has_shared_seed
from jitclient.capture.user_code.code import canonical_code
from jitclient.capture.user_code.ownership import functions_in, is_users_top
from jitclient.core.clock import thread_time, time
from jitclient.core.digests import digest
from jitclient.core.directories import captures_directory, environment_directory, trim
from jitclient.core.file_stamp import file_stamp
from jitclient.errors import AmbientInput, CaptureTooSlow
from jitclient.wire.encoding import decoded, encoded

_SECONDS = 1.0
_RETRY_SECONDS = 0.1
# Less is not worth a record.
_MIN_LOSS_SECONDS = 2 * _RETRY_SECONDS
_MAX_SHARE_OF_TRACE = 0.1
_MAX_AGE_SECONDS = 24 * 3600
_MAX_BYTES = 256 << 10
_MAX_WHY = 300


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """Verdict on the captures of a function."""

    limit: float  # seconds for the next capture
    spent: float  # seconds of the longest such capture
    why: str
    written: float


_NONE = _Record(_SECONDS, 0.0, "", -math.inf)


class CaptureCosts:
    """Costs of one function's captures, kept for processes of this environment.

    Args:
        fun: the function.
        clock: returns the processor time of this thread in seconds.
        now: returns the time in seconds since the epoch.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        clock: Callable[[], float] = thread_time,
        now: Callable[[], float] = time,
    ) -> None:
        self._fun = fun
        self._now = now
        self._record: _Record | None = None
        self.clock = clock

    def is_known(self) -> bool:
        """Return whether there is a verdict on earlier captures."""
        return self._current() is not _NONE

    def budget(self) -> Budget:
        """Return the budget of a capture that starts now."""
        record = self._current()
        if record.limit == _RETRY_SECONDS:
            why = f"its capture took {record.spent:.1f} s today, and failed: {record.why}"
        else:
            why = f"capturing all that it depends on takes more than {record.limit:.1f} s, longer than a trace may take"
        return Budget(record.limit, why, self.clock)

    def weigh(self, spent: float, why: Exception, traced: float) -> None:
        """Compare a capture that failed after `spent` seconds with a trace of `traced` seconds."""
        record = self._current()
        longest = max(spent, record.spent)
        if isinstance(why, CaptureTooSlow):
            limit = traced if traced > 2 * longest else _RETRY_SECONDS
        # Declared inputs cure the other refusal at once.
        elif not isinstance(why, AmbientInput) and spent > max(_MAX_SHARE_OF_TRACE * traced, _MIN_LOSS_SECONDS):
            limit = _RETRY_SECONDS
        else:
            return
        # An equal record expires at its own time, so that the whole budget is tried once a day.
        if record is _NONE or limit != record.limit:
            self._keep(_Record(limit, longest, str(why)[:_MAX_WHY], self._now()))

    def require(self) -> None:
        """Give the next captures all the time that they take."""
        self._keep(_Record(math.inf, 0.0, "", self._now()))

    # ---- records in files

    def _current(self) -> _Record:
        if self._record is None:
            self._record = self._read()
        if not 0 <= self._now() - self._record.written < _MAX_AGE_SECONDS:
            self._record = _NONE
        return self._record

    def _read(self) -> _Record:
        # A damaged record counts as missing, and so does the record of a program with odd modules.
        with contextlib.suppress(Exception):
            if (directory := captures_directory(environment_directory())).exists():
                return decoded((directory / self._name()).read_bytes(), _Record)
        return _NONE

    def _keep(self, record: _Record) -> None:
        self._record = record
        with contextlib.suppress(Exception):
            name_of_record, directory = self._name(), captures_directory(environment_directory())
            directory.mkdir(mode=0o700, exist_ok=True)
            trim(directory, _MAX_BYTES)
            file, name = tempfile.mkstemp(dir=directory)
            with open(file, "wb") as output:
                output.write(encoded(record))
            os.replace(name, directory / name_of_record)

    def _name(self) -> str:
        # With a shared seed, sets have an order that others share.
        parts = [has_shared_seed(), *_definitions(self._fun), *_sources()]
        return digest(repr(parts).encode()).hex()


def _definitions(fun: Callable[..., Any]) -> Iterator[tuple[str, ...]]:
    """Yield names and code of a function, of those that it wraps, and of those that it closes over.

    A wrapper of a library, which is one code for all functions, closes over the user's function.
    """
    yield type(fun).__module__, type(fun).__qualname__
    outer = list(functions_in(fun))
    for function in [*outer, *(inner for each in outer for inner in _closed_over(each))]:
        blob = canonical_code(function.__code__).blob
        yield str(function.__module__), function.__qualname__, digest(blob).hex()


def _closed_over(function: FunctionType) -> Iterator[FunctionType]:
    for cell in function.__closure__ or ():
        # A cell may be empty.
        with contextlib.suppress(ValueError):
            yield from functions_in(cell.cell_contents)


def _sources() -> list[tuple[str, tuple[int, ...]]]:
    """Return the source files of the loaded user modules, each with the part of its stamp that a copy keeps."""
    found = []
    for name, module in dict(sys.modules).items():
        # Not `getattr`, which would load a lazy module.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and is_users_top(name.partition(".")[0]):
            found.append((file, (file_stamp(file) or ())[1:3]))
    return sorted(found)
