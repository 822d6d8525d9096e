"""The text of unit files: templates, filled with what depends on the environment."""

import importlib.resources
import re
import sys
from collections.abc import Mapping

from jitclient.sessions import launch
from jitclient.wire.address import PROCESS_SETTINGS
from jitserver.systemd.target import SUFFIXES, Target

_STEPPED_RESTARTS = 254  # the version of systemd that brought RestartSteps=
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "%": "%%"}


def units(
    target: Target,
    version: int,
    python: str = sys.executable,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The texts of the target's unit files, by suffix, for a systemd of that version."""
    made = process_settings() if settings is None else settings
    fillings = {
        "DIGEST": target.digest,
        "ENVIRONMENT": environment(made),
        # The colon keeps systemd from replacing what looks like a variable in the path.
        "PYTHON": quoted(f":{python}"),
        "RESTART": _restart(version),
    }
    common = _template("common.conf").strip()
    texts = {suffix: _template(f"{target.scope}.{suffix}").replace("@COMMON@", common) for suffix in SUFFIXES}
    return {suffix: re.sub("@([A-Z]+)@", lambda mark: fillings[mark[1]], text) for suffix, text in texts.items()}


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


def _restart(version: int) -> str:
    if version < _STEPPED_RESTARTS:
        return "RestartSec=1s"
    return "RestartSec=1s\nRestartSteps=6\nRestartMaxDelaySec=1min"


def _template(name: str) -> str:
    return (importlib.resources.files("jitserver.systemd") / "templates" / name).read_text(encoding="utf-8")
