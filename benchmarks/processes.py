"""Fresh processes in folders of their own, with an environment that nothing of the user's leaks into."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
FINDS_BENCHMARKS = {"PYTHONPATH": str(TOP)}
"""Environment variables of a process that imports this package."""
PLATFORMS = os.environ.get("JAX_PLATFORMS") or "cpu"
"""Platform of JAX in every process, unless the user says otherwise: DESIGN's targets are the CPU's."""
TELLS_JAX = {"JAX_PLATFORMS": PLATFORMS} if PLATFORMS != "cpu" or entry_points(group="jax_plugins") else {}
"""The variable for that. Where JAX finds the CPU only, it is not set, as most users do not set it."""

_START_SECONDS = 120.0
_END_SECONDS = 60.0
_OWN_FOLDERS = ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")


def platform_of_jax() -> str:
    """Return the platform that jax chooses by itself, or that the user has chosen, and the kind of its devices."""
    find = "import jax; print(jax.default_backend(), jax.devices()[0].device_kind)"
    return subprocess.run([sys.executable, "-c", find], capture_output=True, text=True, check=True).stdout.splitlines()[
        -1
    ]


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder with a path short enough for sockets, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="jsb-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a process that keeps to `folder` and runs nothing locally in silence."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JITSERVER_", "JAX_", "XLA_", "XDG_", "PYTHON", "RAY_", "DASK_"))
    }
    for name in _OWN_FOLDERS:
        kept[name] = str(folder / name.lower())
        Path(kept[name]).mkdir(mode=0o700, exist_ok=True)
    return {
        **kept,
        **TELLS_JAX,
        "JITSERVER_ADDRESS": f"unix:{folder}/none.sock",
        "JITSERVER_AUTOSTART": "0",
        "JITSERVER_FALLBACK": "error",
        "TMPDIR": str(folder),
        **more,
    }


@contextlib.contextmanager
def running(
    arguments: Sequence[str], env: dict[str, str], folder: Path, is_ready: Callable[[], bool]
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process in the background that is ready when this begins and has ended when this ends.

    Raises:
        RuntimeError: it did not become ready; the message ends with what it wrote.
    """
    with open(folder / "log", "ab+") as log:
        process = subprocess.Popen([sys.executable, *arguments], env=env, cwd=folder, stdout=log, stderr=log)
        try:
            _wait_until(is_ready, process, folder / "log")
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a process that we started, in peace if possible."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def wall_time(arguments: Sequence[str], env: dict[str, str], folder: Path, statuses: tuple[int, ...] = (0,)) -> float:
    """Seconds from the start to the end of a fresh Python process."""
    start = time.perf_counter()
    _run(arguments, env, folder, statuses)
    return time.perf_counter() - start


def last_line(arguments: Sequence[str], env: dict[str, str], folder: Path) -> Any:
    """Return the last line that a fresh Python process prints, which is JSON."""
    return json.loads(output(arguments, env, folder).splitlines()[-1])


def output(arguments: Sequence[str], env: dict[str, str], folder: Path) -> str:
    """Return the text that a fresh Python process prints."""
    return _run(arguments, env, folder, (0,))


def _run(arguments: Sequence[str], env: dict[str, str], folder: Path, statuses: tuple[int, ...]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=env, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode not in statuses:
        raise RuntimeError(f"{' '.join(arguments)} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def _wait_until(is_ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"a server did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)
