"""Checks of this environment's versions and settings, and of their differences from the daemon's."""

import difflib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from jitclient.core.directories import PROCESS_SETTINGS, process_settings
from jitclient.core.settings import Settings
from jitclient.errors import SettingsError
from jitclient.version import JAX, __version__, is_supported
from jitclient.wire.address import Address
from jitserver.cli.checks.finding import DaemonState, Finding, verdict

_PREFIX = "JITSERVER_"
_KNOWN = tuple(map(str.upper, Settings._fields))
_MIN_SIMILARITY = 0.8


def versions(state: DaemonState) -> Finding:
    """Check the versions here against those of the daemon, which refuses clients with another version of jax."""
    here = {"jitserver": __version__, "Python": platform.python_version()}
    here |= {name: _installed(name) for name in ("jax", "jaxlib")}
    says = ", ".join(f"{name} {version or 'not installed'}" for name, version in here.items())
    status = state.status
    if here["jax"] and not is_supported(here["jax"]):
        do = "pip install 'jitserver[server]', or [cuda13]; then jitserver restart"
        return Finding("versions", "problem", f"{says}; jitserver needs {JAX}", do)
    if status is None:
        do = f"a daemon needs {JAX}: pip install 'jitserver[server]', or [cuda13]"
        return verdict("versions", bool(here["jax"] and here["jaxlib"]), says, do, "problem")
    there = {"jitserver": status.version, "Python": status.python, **status.packages}
    differ = {name: there.get(name) for name, version in here.items() if version and there.get(name) != version}
    fatal = differ.keys() & {"Python", "jax", "jaxlib"}
    if here["Python"].split(".")[:2] == status.python.split(".")[:2]:
        fatal -= {"Python"}
    do = "jitserver restart"
    if not isinstance(state.address, Address):
        do = "install the same versions on both machines"
        differ = {name: version for name, version in differ.items() if name != "Python" or name in fatal}
    if differ:
        says += "; the daemon has " + ", ".join(f"{name} {version}" for name, version in differ.items())
    return verdict("versions", not differ, says, do, "problem" if fatal else "warning")


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def settings(state: DaemonState) -> Iterator[Finding]:
    """Check the environment variables that are set: their names, their values, and whether the daemon has the same."""
    made = {
        name: value
        for name, value in sorted(os.environ.items())
        if name in PROCESS_SETTINGS or name.startswith((_PREFIX, "JAX_", "XLA_"))
    }
    try:
        Settings.from_environment()
    except SettingsError as error:
        yield Finding("settings", "problem", str(error), "correct or unset it")
    for name in [name.removeprefix(_PREFIX) for name in made if name.startswith(_PREFIX)]:
        meant = difflib.get_close_matches(name, _KNOWN, 1, _MIN_SIMILARITY)
        if meant and name not in _KNOWN:
            yield Finding(
                "settings", "warning", f"{_PREFIX}{name} is not a setting", f"did you mean {_PREFIX}{meant[0]}?"
            )
    if differ := _differing(state):
        do = "jitserver restart with the values that you want, or unset them here"
        yield Finding("settings", "warning", ", ".join(differ), do)
    yield Finding("settings", "ok", ", ".join(f"{name}={value}" for name, value in made.items()) or "none is set")


def _differing(state: DaemonState) -> list[str]:
    """Return the settings of the whole process that differ: calls use the daemon's values, not those of this shell."""
    try:
        pid = state.status.pid if state.status is not None and isinstance(state.address, Address) else 0
        words = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0") if pid else []
    except OSError:  # the daemon has exited, or this is not Linux
        words = []
    if not any(words):
        return []
    ours, theirs = process_settings(), process_settings(dict(word.split("=", 1) for word in words if "=" in word))
    return [
        f"{name} is {ours.get(name, '')!r} in this shell and {theirs.get(name, '')!r} in the daemon"
        for name in PROCESS_SETTINGS
        if ours.get(name) != theirs.get(name)
    ]
