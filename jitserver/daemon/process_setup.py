"""Settings of the daemon process that must be made before jax is imported."""

import contextlib
import os
import resource
import sys
from collections.abc import MutableMapping

from jitclient.wire.address import DAEMON_DEFAULTS, PROCESS_SETTINGS
from jitserver.programs.traces import readers

_TURN_SECONDS = 2e-4
_OPEN_FILES = 65536


def prepare_process(environment: MutableMapping[str, str] = os.environ) -> None:
    """Changes to the folder `/`, and removes JAX settings from the environment: each call brings its own.

    JAX does not preallocate GPU memory unless the user asks, as other programs on the device need memory, too.
    """
    os.chdir("/")
    for name in [name for name in environment if name.startswith("JAX_") and name not in PROCESS_SETTINGS]:
        del environment[name]
    for name, value in DAEMON_DEFAULTS.items():
        environment.setdefault(name, value)


def share_the_interpreter() -> None:
    """Makes threads switch more often, so that calls proceed during a trace. With Python's default of 5 ms, each step
    of a call waits that long while another client's function is traced.
    """
    sys.setswitchinterval(_TURN_SECONDS)


def may_open_files() -> None:
    """Raises the limit of open files as far as the system lets it: a client takes up to three, shared memory more."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(most, _OPEN_FILES)), most))


def notice_reads() -> None:
    """Lets the daemon notice ambient reads of installed packages during a trace. Call it before their import."""
    readers.replace_known()
