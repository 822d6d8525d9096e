"""Rendering of unit files from the templates in the directory `systemd`, with the values of this environment."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from jitclient.core.directories import PROCESS_SETTINGS
from jitclient.session import launch
from jitserver.cli.systemd.target import SUFFIXES, Target

_STEPPED_RESTARTS = 254  # first version of systemd with RestartSteps=
_MADE = "# Made by `jitserver install`; `jitserver uninstall` removes it.\n"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "%": "%%"}


def units(
    target: Target, version: int, python: str = sys.executable, settings: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the texts of the target's unit files by suffix, for this version of systemd."""
    made = process_settings() if settings is None else settings
    return {suffix: _rendered(target, suffix, version, python, made) for suffix in SUFFIXES}


def _rendered(target: Target, suffix: str, version: int, python: str, made: Mapping[str, str]) -> str:
    """Return a template with the names, the socket, the command and the environment of the target."""
    name, user = ("jitserver@", "%i") if target.user else ("jitserver", "")
    text = (_directory() / target.scope / f"{name}.{suffix}").read_text(encoding="utf-8")
    text = text[text.index("[Unit]") :]
    socket = f"{name}{user}.socket"
    text = text.replace(socket, socket.replace("jitserver", f"jitserver-{target.digest}"))
    text = text.replace("/jitserver/jitserver.sock", f"/jitserver/{target.digest}.sock")
    text = text.replace("/jitserver/%i.sock", f"/jitserver/{target.digest}/%i.sock")
    if version < _STEPPED_RESTARTS:
        text = re.sub("^Restart(Steps|MaxDelaySec)=.*\n", "", text, flags=re.MULTILINE)
    # The colon prevents systemd from substituting variables in the path.
    command = f"ExecStart={quoted(f':{python}')} -P -m jitserver serve"
    return _MADE + re.sub(
        "^ExecStart=.* serve(.*)$", lambda found: f"{command}{found[1]}\n{environment(made)}", text, flags=re.MULTILINE
    )


def environment(made: Mapping[str, str]) -> str:
    """Return the lines that set these environment variables for a daemon, and unset all other process settings."""
    lines = [f"Environment={quoted(f'{name}={value}')}" for name, value in sorted(made.items())]
    # Unset the others, because the service manager may set them, and the digest that names the daemon would then be
    # wrong.
    others = [name for name in (*PROCESS_SETTINGS, "PYTHONPATH") if name not in made]
    return "\n".join([*lines, f"UnsetEnvironment={' '.join(others)}"])


def process_settings() -> dict[str, str]:
    """Return the environment variables of this shell that a daemon needs to match the digest of its environment."""
    ours = launch.daemon_environment()
    names = (*PROCESS_SETTINGS, "LD_LIBRARY_PATH", "PYTHONPATH")
    return {name: ours[name] for name in names if ours.get(name)}


def quoted(word: str) -> str:
    """Return a word quoted for unit files (systemd.syntax(7), systemd.unit(5))."""
    return '"' + "".join(_ESCAPES.get(character, character) for character in word) + '"'


def is_fit(python: str) -> bool:
    """Return whether systemd can run a program at this path, however the path is quoted."""
    return python.isprintable() and not set(python) & set("\"'\\")


def _directory() -> Path:
    packaged = Path(__file__).parent / "units"
    return packaged if packaged.is_dir() else packaged.parents[3] / "systemd"  # in a source checkout
