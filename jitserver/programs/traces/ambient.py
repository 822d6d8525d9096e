"""Detection of ambient reads during a trace, whose result must not be cached under the function's key.

Reads by user code itself raise an exception in its private namespace. This module detects all others: exceptions that
user code caught, files that installed code opened (`jitclient/capture/ambient/audit.py`), changes of the global
generators of `random` and `numpy.random`, and reads noted by `ambient_reads.py`.
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from jitclient.capture.ambient.inputs import message_of, record_read, recorded_reads
from jitclient.errors import AmbientInput

OF_GENERATORS = message_of("the state of a global random generator")
"""Message if only the state of a global generator has changed, which another thread may have caused."""


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Raise AmbientInput at the end of the context if this thread made ambient reads.

    AmbientInput also replaces an exception that such reads caused. The message names the first read.
    """
    failure: BaseException | None = None
    with recorded_reads() as reads:
        before = _generators()
        try:
            yield
        except AmbientInput:
            raise
        except BaseException as error:
            # The reads may have caused this: the daemon does not have the files of the client's directory.
            failure = error
        if before != _generators():
            record_read(OF_GENERATORS)
    if reads:
        raise AmbientInput(reads[0]) from failure
    if failure is not None:
        raise failure


def _generators() -> tuple[Any, ...]:
    """Return the states of the global generators. A change by another thread costs a second trace."""
    # Normal numbers come in pairs: the second one changes only the end of the state.
    _, words, *others = np.random.get_state(legacy=True)
    return bytes(np.asarray(words)), *others, random.getstate()
