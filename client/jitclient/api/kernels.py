"""Kernels that a program starts through Jupyter: those of this environment run under jitclient, as the program does.

Jupyter finds kernels by their specs. Once a program imports Jupyter, JUPYTER_PATH puts other specs in front of this
environment's own, which start the same kernels by `python -m jitclient`. An environment variable, because the command
`jupyter lab` executes another program in its place.
"""

import functools
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jitclient.calls.exit_summary import KERNEL
from jitclient.core import directories
from jitclient.core.digests import digest
from jitclient.core.notices import print_notice
from jitclient.jaxside import interop

_VARIABLE = "JUPYTER_PATH"
_PATHS = "jupyter_core.paths"
_SPEC = "kernel.json"


def run_under_jitclient(packages: Sequence[str]) -> None:
    """Make the kernels that this program starts run under jitclient, once the program imports Jupyter.

    They have no report at their end, when ipykernel no longer shows what they print.

    Args:
        packages: the installed packages whose jits run on the daemon.
    """
    options = [word for name in packages for word in ("--package", name)]
    interop.when_loaded(functools.partial(_put_in_front, options), _PATHS, "jupyter_path")


def _put_in_front(options: list[str]) -> None:
    try:
        found = _specs(sys.modules[_PATHS].jupyter_path("kernels"), options)
        if found:
            others = os.environ.get(_VARIABLE)
            os.environ[_VARIABLE] = os.pathsep.join([str(_written(found)), *([others] if others else [])])
    # A failure here must not fail the program's import.
    except Exception as error:
        print_notice(f"notebooks run without the daemon: their kernels cannot be prepared ({error})")


def _specs(folders: Sequence[str], options: list[str]) -> dict[Path, str]:
    """Return the specs that start this environment's kernels under jitclient.

    Args:
        folders: where Jupyter looks for specs, the first one first.
        options: options of `python -m jitclient`.

    Returns:
        The content of each spec, by the folder of the spec that it replaces.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for file in Path(folder).glob(f"*/{_SPEC}"):
            found.setdefault(file.parent.name, file)
    specs = {file.parent: _under_jitclient(json.loads(file.read_bytes()), options) for file in found.values()}
    return {folder: json.dumps(spec) for folder, spec in specs.items() if spec}


def _under_jitclient(spec: dict[str, Any], options: list[str]) -> dict[str, Any]:
    """Return the spec of the same kernel under jitclient; empty for another environment's, or one that is already."""
    python, *words = spec["argv"]
    if not _is_own(python) or KERNEL not in words or "jitclient" in words:
        return {}
    at = words.index(KERNEL) - 1
    return {**spec, "argv": [python, *words[:at], "-m", "jitclient", *options, *words[at:]]}


def _is_own(python: str) -> bool:
    """Return whether a spec names this environment's Python, by its path or by a name that Jupyter replaces by it."""
    version = sysconfig.get_python_version()
    folder, name = os.path.split(python)
    return folder in ("", os.path.dirname(sys.executable)) and name in (
        "python",
        f"python{version.partition('.')[0]}",
        f"python{version}",
    )


def _written(specs: dict[Path, str]) -> Path:
    """Write specs, with the other files of those that they replace; return the entry of JUPYTER_PATH.

    The name of the directory follows from the specs: programs that run at the same time may have other options.

    Raises:
        OSError, SettingsError: the files cannot be written.
    """
    name = digest(repr(specs).encode(errors="surrogateescape"), 6).hex()
    path = directories.environment_directory() / "jupyter" / name
    if not path.exists():
        temporary = path.with_name(f".{name}.{os.getpid()}")
        try:
            for folder, spec in specs.items():
                copy = shutil.copytree(folder, temporary / "kernels" / folder.name)
                (copy / _SPEC).write_text(spec)
            temporary.replace(path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return path
