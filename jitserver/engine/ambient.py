"""Reads of the world while a captured function is traced: such a trace must not be kept under the function's key.

What user code reaches by itself is a trap in its sandbox. Here is the rest: errors that the user's code swallowed,
files that installed code opened, the hidden generators of `random` and `numpy.random`, and what `readers.py` sees.
"""

import contextlib
import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from jitclient.capture.ambient import message_of, note_read, noted_reads, unnoted
from jitclient.errors import AmbientInput
from jitserver.engine.readers import IMPORTS_AND_QUOTES, is_below, is_installation

OF_GENERATORS = message_of("the state of a global random generator")
"""What is said where nothing but such a state has changed: another thread may have done that."""

_CALLS = ("socket.connect", "socket.gethostname", "sqlite3.connect", "subprocess.Popen")
_EVENTS = frozenset({"open", "os.listdir", "os.scandir", *_CALLS})


def watch_files() -> None:
    """Begins to note the files that are opened while something is traced. There is no way back: once per process."""
    sys.addaudithook(_on_event)


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Raises at its end if the world was read meanwhile by this thread, also in place of what came of the reading.

    Raises:
        AmbientInput: it was; the message says what was read.
    """
    failure: BaseException | None = None
    with noted_reads() as reads:
        before = _generators()
        try:
            yield
        except AmbientInput:
            raise
        except BaseException as error:
            failure = error  # here, where other files lie than in the client's folder
        if before != _generators():
            note_read(OF_GENERATORS)
    if reads:
        raise AmbientInput(reads[0]) from failure
    if failure is not None:
        raise failure


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    with unnoted() as wanted:  # to find out whether a file is an installed one opens files itself
        what = _input_of(event, arguments) if wanted else ""
    if what:
        note_read(message_of(what))


def _input_of(event: str, arguments: tuple[Any, ...]) -> str:
    """What an event reads from outside; empty if it is nothing that may differ at the next run."""
    if event in _CALLS:
        return event
    if event == "open":
        path, mode, flags = arguments
        reads = "r" in mode or "+" in mode if mode is not None else not flags & os.O_WRONLY
    else:
        path, reads = "." if arguments[0] is None else arguments[0], True
    if not reads or not isinstance(path, (str, bytes)):
        return ""
    name = os.fsdecode(path)
    if is_installation(name):
        return ""
    if (event != "open" or name.endswith(".py")) and is_below(IMPORTS_AND_QUOTES):
        return ""
    return f"{'file' if event == 'open' else 'folder'} {name!r}"


def _generators() -> tuple[Any, ...]:
    """The states of the hidden generators. Another thread may change them: that costs a second trace."""
    _, words, position, *_ = np.random.get_state(legacy=True)
    return bytes(np.asarray(words)), position, random.getstate()
