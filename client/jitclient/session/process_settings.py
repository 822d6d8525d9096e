"""Notice that the environment of this program differs from its daemon's in settings of a whole process.

The default address has a daemon for each set of values. An address that the user chose may have any.
"""

import os
from collections.abc import Mapping

from jitclient.core import directories
from jitclient.core.notices import warn
from jitclient.wire.messages import Welcome

_OF_OWN_JAX = ("JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS", "JAX_PLATFORM_NAME")
"""Settings that a program may have for its own jax alone, such as to keep it off the accelerator."""

_notified = set[str]()


def notify_once(welcome: Welcome, environment: Mapping[str, str] = os.environ) -> None:
    """Warn once of settings of this process that its daemon does not have, and of any that change values."""
    differ = difference(directories.process_settings(environment), welcome.settings)
    if differ and differ not in _notified:
        _notified.add(differ)
        warn(
            f"the daemon (pid {welcome.pid}) does not have the environment of this program, and its own counts: "
            f"{differ}. Unset JITSERVER_ADDRESS, which gives each environment a daemon of its own; or restart the "
            "daemon with these values (`jitserver restart`), or unset them here"
        )


def difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Return a text about the settings that differ; empty if none does."""
    found = []
    for name in directories.PROCESS_SETTINGS:
        here, there = _relevant(name, ours.get(name, "")), _relevant(name, theirs.get(name, ""))
        if here != there and name not in _OF_OWN_JAX and (here or name in directories.OF_VALUES):
            found.append(f"{name} is {here!r} here and {there!r} there")
    return ", ".join(found)


def _relevant(name: str, value: str) -> str:
    if name != "XLA_FLAGS":
        return value
    # The number of CPU devices is such a setting, too.
    return " ".join(flag for flag in value.split() if not flag.startswith(directories.HOST_DEVICES_FLAG))
