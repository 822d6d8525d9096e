"""Every family of scenarios runs, compares what it says, and leaves nothing behind. Nothing here asserts a time."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scenarios
from benchmarks.sshd import SSHD

from ..conftest import HASTY

TOP = Path(__file__).parents[2]
EXTRA = {
    "tutorial": "cloudpickle",
    "Ray actor": "ray",
    "Ray pool": "ray",
    "Dask actor": "distributed",
    "Dask": "distributed",
    "joblib": "joblib",
    "cloudpickle": "cloudpickle",
}
COMPARED = {
    "first_call": {"JAX's disk cache", "plain jax.jit"},
    "own_trace": {"without the own trace", "plain jax.jit"},
    "restart": {"JAX's disk cache"},
    "small_call": {"bare socket", "plain jax.jit", "tutorial", "Ray actor", "Dask actor"},
    "pipelined": {"plain jax.jit", "Ray actor"},
    "loops": {"plain jax.jit"},
    "array_size": {"bare socket", "plain jax.jit", "tutorial", "Ray actor", "Dask actor"},
    "remote": {"bare TCP socket"},
    "over_ssh": {"bare ssh"},
    "leaves": {"bare socket", "plain jax.jit", "tutorial"},
    "nnx": {"plain jax.jit"},
    "effects": {"plain jax.jit"},
    "functions": {"JAX's disk cache", "plain jax.jit", "tutorial"},
    "clients": {"bare socket", "tutorial"},
    "tasks": {"ProcessPoolExecutor", "joblib", "Ray pool", "Dask"},
    "tracing": {"bare socket", "tutorial"},
    "imports": {"numpy", "jax"},
    "whole_script": {"JAX's disk cache", "plain jax.jit"},
    "lab": {"JAX's disk cache", "plain jax.jit"},
    "unchanged": {"cloudpickle"},
    "capture": {"cloudpickle"},
    "command_line": {"import click"},
    "catalog": set(),
    "gpu": set(),
}
"""Family -> the rivals that its first row must show, or name as missing."""


QUICK = ("imports",)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in scenarios.NAMES]
)
def test_a_family_runs_and_leaves_nothing(name: str, short_path: Path, until: Callable[..., Any]) -> None:
    saved = short_path / "saved.json"
    result = run(name, "--save", str(saved), folder=short_path)
    rows = result["results"][name]["rows"]
    assert json.loads(saved.read_text()) == result
    assert result["machine"]["cores"] >= 1
    for row in rows:
        assert_measured(row)
    for rival in COMPARED[name]:
        assert (rival in rows[0]["costs"]) == is_installed(rival), rows[0]
        assert (rival in rows[0]["missing"]) != is_installed(rival)
    saved.unlink()
    assert list(short_path.iterdir()) == []
    until(lambda: processes_with(short_path) == [], "its processes to end")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_one_that_is_interrupted_leaves_nothing(number: int, short_path: Path, until: Callable[..., Any]) -> None:
    # a shell that runs these tests in the background has them ignore Ctrl-C, and their children with them
    heeding = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    run_leaves = "import sys; sys.argv[1:] = ['leaves', '--json']; runpy.run_module('benchmarks', run_name='__main__')"
    arguments = [sys.executable, "-c", heeding + run_leaves]
    env = {**os.environ, "TMPDIR": str(short_path)}
    benchmark = subprocess.Popen(arguments, cwd=TOP, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        until(lambda: list(short_path.glob("jsb-*/d.sock")), "the daemon of the benchmark")
        benchmark.send_signal(number)
        out, _ = benchmark.communicate(timeout=120)
    finally:
        benchmark.kill()
        benchmark.wait()
    assert benchmark.returncode != 0
    assert out == b""
    assert list(short_path.iterdir()) == []
    # a client that was being started at that moment leaves by itself, as soon as it finds no peer there
    until(lambda: processes_with(short_path) == [], "the last client to leave")


def run(*arguments: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--quick", "--json"],
        cwd=TOP,
        env={**os.environ, "TMPDIR": str(folder), "XLA_FLAGS": HASTY},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_measured(row: dict[str, Any]) -> None:
    """Ours was measured and no contender failed, or the row says that it cannot be measured yet."""
    assert row["failed"] == {}
    if not row["costs"]:
        assert [target["verdict"] for target in row["targets"]] == ["not yet"]
        assert row["note"]
        return
    assert "jitserver" in row["costs"]
    for cost in row["costs"].values():
        assert 0 < cost["low"] <= cost["median"] <= cost["high"]
    assert set(row["ratios"]) == set(row["costs"]) - {"jitserver"}
    for target in row["targets"]:
        assert target["verdict"] in ("met", "missed")
        assert (target["verdict"] == "met") == (target["measured"]["median"] <= target["most"])


def is_installed(rival: str) -> bool:
    if rival == "bare ssh":
        return SSHD is not None
    return rival not in EXTRA or importlib.util.find_spec(EXTRA[rival]) is not None


def processes_with(folder: Path) -> list[str]:
    """The commands of all processes in whose environment the folder is."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (path / "environ").read_bytes():
                found.append((path / "cmdline").read_bytes().decode())
        except OSError:  # it has ended, or belongs to another user
            continue
    return found
