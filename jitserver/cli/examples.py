"""The examples that come with jitserver: their topics, their requirements, and runs that measure their cost."""

import ast
import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from jitclient.core.settings import settings
from jitclient.errors import DaemonUnavailable
from jitclient.session.launch import IDLE_EXIT_SECONDS
from jitclient.wire.introspection import Status
from jitclient.wire.messages import Verb
from jitserver.cli.common import ask, selected_address
from jitserver.cli.lifecycle import launched

COUNTED = ("traces", "compiles", "client_traces", "local_runs")

PACKAGED = Path(__file__).parent / "demos" / "examples"

_PIP_NAMES = {"haiku": "dm-haiku"}


class Example(NamedTuple):
    """An example program.

    Attributes:
        name: the name of the example.
        about: the first sentence of its docstring.
        missing: the packages that it needs and this environment lacks, under their names for pip.
        devices: how many devices of the CPU it asks jax for; 0 if it runs on any device.
    """

    name: str
    about: str
    missing: list[str]
    devices: int = 0


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
    return Example(name, about, missing, _devices(module))


@contextlib.contextmanager
def daemon_for(wanted: Example) -> Iterator[None]:
    """Make this process and the programs that it starts use a daemon with as many devices as the example asks for.

    That is the running daemon, or one of the CPU that exits with the context.
    """
    if not wanted.devices:
        launched(selected_address(), IDLE_EXIT_SECONDS)
        yield
        return
    with contextlib.suppress(DaemonUnavailable):
        running: Status = ask(Verb.STATUS, None, Status)
        if len(running.devices) >= wanted.devices:
            yield
            return
    from jitserver.daemon.embedded import run_daemon  # imports subprocess

    before = os.environ.get("JITSERVER_ADDRESS")
    with run_daemon(env={"JAX_NUM_CPU_DEVICES": str(wanted.devices), "JAX_PLATFORMS": "cpu"}) as own:
        try:
            _use(own.address)
            yield
        finally:
            _use(before)


def _use(address: str | None) -> None:
    if address is None:
        os.environ.pop("JITSERVER_ADDRESS", None)
    else:
        os.environ.update(JITSERVER_ADDRESS=address)
    settings.cache_clear()


def _devices(module: ast.Module) -> int:
    for node in ast.walk(module):
        match node:
            case ast.Call(args=[ast.Constant("jax_num_cpu_devices"), ast.Constant(int(number))]):
                return number
    return 0


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
