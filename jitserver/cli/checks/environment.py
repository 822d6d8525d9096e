"""Checks of this environment's versions and settings, and of their differences from the daemon's."""

import dataclasses
import difflib
import importlib.metadata
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from jitclient.core.directories import DAEMON_DEFAULTS, PROCESS_SETTINGS
from jitclient.core.settings import Settings
from jitclient.errors import SettingsError
from jitclient.version import __version__
from jitclient.wire.address import Address
from jitserver.cli.checks.finding import DaemonState, Finding, verdict

_PREFIX = "JITSERVER_"
_KNOWN = tuple(field.name.upper() for field in dataclasses.fields(Settings))
_MIN_SIMILARITY = 0.8


def versions(state: DaemonState) -> Finding:
    """Check the versions here against those of the daemon, which refuses clients with another version of jax."""
    here = {"jitserver": __version__, "Python": platform.python_version()}
    here |= {name: _installed(name) for name in ("jax", "jaxlib")}
    says = ", ".join(f"{name} {version or 'not installed'}" for name, version in here.items())
    status = state.status
    if status is None:
        do = "a daemon needs jax: pip install 'jitserver[server]', or [cuda13]"
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


def command(_: DaemonState) -> Finding:
    """Check whether the shell runs this environment's command: other software has one of that name, as OpenJ9 does."""
    own, found = os.path.join(sysconfig.get_path("scripts"), "jitserver"), shutil.which("jitserver")
    if found is None:
        return Finding("command", "ok", f"not on PATH: this environment's is {own}")
    fits = os.path.realpath(found) == os.path.realpath(own)
    says = f"jitserver on PATH is {found}" + ("" if fits else ", another program or that of another environment")
    return verdict(
        "command", fits, says, f"put {os.path.dirname(own)} first in PATH, or run {sys.executable} -m jitserver"
    )


def plugins(_: DaemonState) -> Iterator[Finding]:
    """Check the versions of jax's own plugins for accelerators, which must be that of jaxlib."""
    jaxlib = _installed("jaxlib")
    for point in importlib.metadata.entry_points(group="jax_plugins"):
        name, version = (point.dist.name.replace("_", "-"), point.dist.version) if point.dist else ("", "")
        if jaxlib and name.startswith(("jax-cuda", "jax-rocm")):
            says = f"{name} {version}, jaxlib {jaxlib}"
            yield verdict("plugins", version == jaxlib, says, f"pip install '{name}=={jaxlib}'; jitserver restart")


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def settings(state: DaemonState) -> Iterator[Finding]:
    """Check the environment variables that are set: whether such settings exist, and their values are valid."""
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
    yield Finding("settings", "ok", ", ".join(f"{name}={value}" for name, value in made.items()) or "none is set")


def settings_of_daemon(state: DaemonState) -> Iterator[Finding]:
    """Check the settings that apply to a whole process: calls use the daemon's values, not those of this shell."""
    if state.status is None:
        return
    try:
        words = Path(f"{state.process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError as error:
        yield Finding("daemon settings", "ok", f"not readable: {error.strerror}")
        return
    there = dict(word.split("=", 1) for word in words if "=" in word)
    if not there:
        yield Finding("daemon settings", "ok", "not readable")
        return
    differ = [
        f"{name} is {ours!r} in this shell and {theirs!r} in the daemon"
        for name in PROCESS_SETTINGS
        if (ours := _value_of(os.environ, name)) != (theirs := _value_of(there, name))
    ]
    says = ", ".join(differ) or "the settings of the whole process are the same as in this shell"
    do = "jitserver restart with the values that you want, or unset them here"
    yield verdict("daemon settings", not differ, says, do)


def _value_of(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or DAEMON_DEFAULTS.get(name, "")
