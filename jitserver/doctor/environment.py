"""The settings of this shell, and how the daemon's differ."""

import dataclasses
import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from jitclient.errors import SettingsError
from jitclient.settings import Settings
from jitclient.wire.address import DAEMON_DEFAULTS, PROCESS_SETTINGS
from jitserver.doctor.finding import DaemonState, Finding, verdict

_OURS = "JITSERVER_"
_KNOWN = tuple(field.name.upper() for field in dataclasses.fields(Settings))
_LIKENESS = 0.8


def settings(state: DaemonState) -> Iterator[Finding]:
    """The variables that are set, and whether they exist and have valid values."""
    made = {name: os.environ[name] for name in sorted(os.environ) if _is_setting(name)}
    try:
        Settings.from_environment()
    except SettingsError as error:
        yield Finding("settings", "problem", str(error), "correct or unset it")
    for name in [name.removeprefix(_OURS) for name in made if name.startswith(_OURS)]:
        meant = difflib.get_close_matches(name, _KNOWN, 1, _LIKENESS)
        if meant and name not in _KNOWN:
            yield Finding("settings", "warning", f"{_OURS}{name} is no setting", f"did you mean {_OURS}{meant[0]}?")
    yield Finding("settings", "ok", ", ".join(f"{name}={value}" for name, value in made.items()) or "none is set")


def settings_of_daemon(state: DaemonState) -> Iterator[Finding]:
    """Settings that hold for a whole process: calls use the daemon's, not those of this shell."""
    check = "its settings"
    if state.status is None:
        return
    try:
        words = Path(f"{state.process}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError as error:
        yield Finding(check, "ok", f"not readable: {error.strerror}")
        return
    there = dict(word.split("=", 1) for word in words if "=" in word)
    if not there:
        yield Finding(check, "ok", "not readable")
        return
    pairs = {name: (_said(os.environ, name), _said(there, name)) for name in PROCESS_SETTINGS}
    differ = [
        f"{name} is {ours!r} here and {theirs!r} there" for name, (ours, theirs) in pairs.items() if ours != theirs
    ]
    says = ", ".join(differ) or "those that hold for a whole process are as here"
    yield verdict(check, not differ, says, "jitserver restart with the values that you want, or unset them here")


def _said(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or DAEMON_DEFAULTS.get(name, "")


def _is_setting(name: str) -> bool:
    return name in PROCESS_SETTINGS or name.startswith((_OURS, "JAX_", "XLA_"))
