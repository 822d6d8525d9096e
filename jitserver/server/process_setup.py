"""What a daemon process settles before jax is imported."""

import os
import sys
from collections.abc import MutableMapping

from jitclient.wire.address import DAEMON_DEFAULTS, PROCESS_SETTINGS
from jitserver.engine import readers

_TURN_SECONDS = 2e-4


def prepare_process(environment: MutableMapping[str, str] = os.environ) -> None:
    """Leaves the caller's folder, and removes JAX settings: each call brings its own.

    GPU memory is not taken in advance unless the user asks: other programs on the device need some too.
    """
    os.chdir("/")
    for name in [name for name in environment if name.startswith("JAX_") and name not in PROCESS_SETTINGS]:
        del environment[name]
    for name, value in DAEMON_DEFAULTS.items():
        environment.setdefault(name, value)


def share_the_interpreter() -> None:
    """Lets hot calls go on beside a trace: threads take turns more often. With Python's own 5 ms, each step of a call
    waits that long while another client's function is traced.
    """
    sys.setswitchinterval(_TURN_SECONDS)


def notice_reads() -> None:
    """Lets the daemon notice what installed packages read of the world while they are traced; before their import."""
    readers.replace_known()
