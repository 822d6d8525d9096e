"""The text of unit files: those of the folder `systemd`, with what depends on the environment."""

import importlib.resources
import re
import sys
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path

from jitclient.sessions import launch
from jitclient.wire.address import PROCESS_SETTINGS
from jitserver.systemd.target import SUFFIXES, Target

_STEPPED_RESTARTS = 254  # the version of systemd that brought RestartSteps=
_MADE = "# Made by `jitserver install`; `jitserver uninstall` removes it.\n"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "%": "%%"}


def units(
    target: Target,
    version: int,
    python: str = sys.executable,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The texts of the target's unit files, by suffix, for a systemd of that version."""
    made = process_settings() if settings is None else settings
    return {suffix: _rendered(target, suffix, version, python, made) for suffix in SUFFIXES}


def _rendered(target: Target, suffix: str, version: int, python: str, made: Mapping[str, str]) -> str:
    """A file of the folder `systemd`, with the names, the socket, the command and the environment of the target."""
    name, user = ("jitserver@", "%i") if target.user else ("jitserver", "")
    text = (_folder() / target.scope / f"{name}.{suffix}").read_text(encoding="utf-8")
    text = text[text.index("[Unit]") :]
    text = text.replace(
        f"{name}{user}.socket", f"{name}{user}.socket".replace("jitserver", f"jitserver-{target.digest}")
    )
    text = text.replace("/jitserver/jitserver.sock", f"/jitserver/{target.digest}.sock")
    text = text.replace("/jitserver/%i.sock", f"/jitserver/{target.digest}/%i.sock")
    if version < _STEPPED_RESTARTS:
        text = re.sub("^Restart(Steps|MaxDelaySec)=.*\n", "", text, flags=re.MULTILINE)
    # The colon keeps systemd from replacing what looks like a variable in the path.
    command = f"ExecStart={quoted(f':{python}')} -P -m jitserver serve"
    return _MADE + re.sub(
        "^ExecStart=.* serve(.*)$", lambda found: f"{command}{found[1]}\n{environment(made)}", text, flags=re.MULTILINE
    )


def environment(made: Mapping[str, str]) -> str:
    """The lines that give a daemon these variables, and none of the process-only settings beside them."""
    lines = [f"Environment={quoted(f'{name}={value}')}" for name, value in sorted(made.items())]
    # Its manager may have others, and then the digest, which names the daemon, would not be true.
    others = [name for name in (*PROCESS_SETTINGS, "PYTHONPATH") if name not in made]
    return "\n".join([*lines, f"UnsetEnvironment={' '.join(others)}"])


def process_settings() -> dict[str, str]:
    """What a daemon must have from the environment of whoever installs it, to be the one that the digest names."""
    ours = launch.daemon_environment()
    names = (*PROCESS_SETTINGS, "LD_LIBRARY_PATH", "PYTHONPATH")
    return {name: ours[name] for name in names if ours.get(name)}


def quoted(word: str) -> str:
    """One word of a unit file that systemd reads back as `word` (systemd.syntax(7), systemd.unit(5))."""
    return '"' + "".join(_ESCAPES.get(character, character) for character in word) + '"'


def is_fit(python: str) -> bool:
    """Whether systemd runs a program of that path at all, however it is quoted."""
    return python.isprintable() and not set(python) & set("\"'\\")


def _folder() -> Traversable:
    packaged = importlib.resources.files("jitserver.systemd") / "units"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "systemd"  # in a checkout
