"""Settings of the daemon process that must be made before jax is imported."""

import contextlib
import os
import resource
import sys
from collections.abc import Mapping, MutableMapping
from importlib.metadata import entry_points

from jitclient.core.directories import DAEMON_DEFAULTS, PROCESS_SETTINGS
from jitserver.programs.traces import ambient_reads

_SWITCH_SECONDS = 2e-4
_MAX_OPEN_FILES = 65536


def prepare_process(environment: MutableMapping[str, str] = os.environ) -> None:
    """Change to the directory `/`, and remove JAX settings from the environment: each call has its own settings.

    JAX does not preallocate GPU memory unless the user requests it, because other programs on the device also need
    memory.
    """
    os.chdir("/")
    for name in [name for name in environment if name.startswith("JAX_") and name not in PROCESS_SETTINGS]:
        del environment[name]
    for name, value in DAEMON_DEFAULTS.items():
        environment.setdefault(name, value)


def shorten_switch_interval() -> None:
    """Make threads switch more often, so that calls proceed during a trace.

    With Python's default of 5 ms, each step of a call waits for that time while another client's function is traced.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)


def may_have_accelerator(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether JAX may find an accelerator: a plugin is installed, and JAX_PLATFORMS does not exclude it."""
    return bool(entry_points(group="jax_plugins")) and environment.get("JAX_PLATFORMS") != "cpu"


def raise_open_file_limit() -> None:
    """Raise the limit of open files as far as permitted: a client takes up to three, and shared memory more."""
    now, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, min(limit, _MAX_OPEN_FILES)), limit))


def install_read_detection() -> None:
    """Install the detection of ambient reads by installed packages during a trace. Call this before importing them."""
    ambient_reads.install()
