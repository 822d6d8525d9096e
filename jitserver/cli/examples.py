"""The examples that come with jitserver: their topics, their requirements, and runs that measure their cost."""

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import click

from jitclient.wire.messages import Status, Verb
from jitserver.cli.common import ask

COUNTED = ("traces", "compiles", "client_traces", "local_runs")

PACKAGED = Path(__file__).parent / "demos" / "examples"

_PIP_NAMES = {"haiku": "dm-haiku"}


class Example(NamedTuple):
    """An example program.

    Attributes:
        name: the name of the example.
        about: the first sentence of its docstring.
        missing: the packages that it needs and this environment lacks, under their names for pip.
    """

    name: str
    about: str
    missing: list[str]


def names() -> list[str]:
    """Return the names of all examples."""
    return sorted(path.stem for path in _directory().glob("*.py"))


def example(name: str) -> Example:
    """Return the example of a name, from its source; the example is not run."""
    module = ast.parse(_path(name).read_text())
    nodes = [node for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = sorted({module.partition(".")[0] for module in imported} - set(names()))
    missing = [_PIP_NAMES.get(package, package) for package in packages if not importlib.util.find_spec(package)]
    about = re.split(r"\.(?:\s|$)", ast.get_docstring(module) or "", maxsplit=1)[0]
    return Example(name, about, missing)


def run(name: str) -> dict[str, Any]:
    """Run an example in a fresh process.

    Returns:
        The duration in seconds, the output, and the changes of the daemon's counters.

    Raises:
        ClickException: the example failed.
    """
    before: Status = ask(Verb.STATUS, None, Status)
    start = time.time()
    # Run a copy, because files in an installed package do not count as user code.
    with tempfile.TemporaryDirectory(prefix="jitserver-demo-") as directory:
        shutil.copytree(_directory(), directory, dirs_exist_ok=True)
        program = Path(directory) / f"{name}.py"
        done = subprocess.run([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{_path(name)} failed")
    after: Status = ask(Verb.STATUS, None, Status)
    counted = {field: getattr(after, field) - getattr(before, field) for field in COUNTED}
    return {"seconds": time.time() - start, "output": done.stdout, **counted}


def _path(name: str) -> Path:
    return _directory() / f"{name}.py"


def _directory() -> Path:
    return PACKAGED if PACKAGED.is_dir() else PACKAGED.parents[3] / "examples"  # in a source checkout
