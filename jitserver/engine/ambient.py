"""Reads of the world while a captured function is traced: such a trace must not be kept under the function's key.

What user code reaches by itself is a trap in its sandbox. Here is the rest: errors that the user's code swallowed,
files that installed code opened (`codec/ambient/world.py`), the hidden generators of `random` and `numpy.random`, and
what `readers.py` sees.
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from jitclient.codec.ambient.inputs import message_of, note_read, noted_reads
from jitclient.errors import AmbientInput

OF_GENERATORS = message_of("the state of a global random generator")
"""What is said where nothing but such a state has changed: another thread may have done that."""


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


def _generators() -> tuple[Any, ...]:
    """The states of the hidden generators. Another thread may change them: that costs a second trace."""
    _, words, position, *_ = np.random.get_state(legacy=True)
    return bytes(np.asarray(words)), position, random.getstate()
