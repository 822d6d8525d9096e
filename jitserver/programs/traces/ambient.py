"""Detects ambient reads during a trace, whose result must not be cached under the function's key.

Reads by user code itself raise in its private namespace. This module detects the others: errors that user code caught,
files that installed code opened (`codec/ambient/world.py`), changes of the global generators of `random` and
`numpy.random`, and what `readers.py` notes.
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from jitclient.capture.ambient.inputs import message_of, note_read, noted_reads
from jitclient.errors import AmbientInput

OF_GENERATORS = message_of("the state of a global random generator")
"""The message if only such a state has changed, which another thread may have done."""


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Raises AmbientInput at the end if this thread made ambient reads, also in place of an exception that they caused;
    the message names the first read.
    """
    failure: BaseException | None = None
    with noted_reads() as reads:
        before = _generators()
        try:
            yield
        except AmbientInput:
            raise
        except BaseException as error:
            failure = error  # perhaps because the daemon has other files than the client's folder
        if before != _generators():
            note_read(OF_GENERATORS)
    if reads:
        raise AmbientInput(reads[0]) from failure
    if failure is not None:
        raise failure


def _generators() -> tuple[Any, ...]:
    """The states of the global generators. If another thread changes them, that costs a second trace."""
    _, words, position, *_ = np.random.get_state(legacy=True)
    return bytes(np.asarray(words)), position, random.getstate()
