"""Modules that a trace imports have the values that they have elsewhere."""

import importlib
import importlib.util
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

from jitclient.jaxside import trace_imports

BODY = "import jax, jax.numpy as jnp\nTWO = jnp.float32(1) + 1\nSIN = jax.jit(jnp.sin)(TWO)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "zipped.zip"))
    (tmp_path / "in_a_file.py").write_text(BODY)
    (tmp_path / "that_fails.py").write_text("1 / 0")
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as file:
        for name in ("in_a_zip", "in_a_zip_too"):
            file.writestr(f"{name}.py", BODY)
    yield tmp_path
    for name in ("in_a_file", "in_a_zip", "in_a_zip_too"):
        sys.modules.pop(name, None)


def traced(function: Any) -> Any:
    with trace_imports.evaluated():
        return jax.jit(function).trace(1.0)


@pytest.mark.parametrize("name", ["in_a_file", "in_a_zip"])
def test_constants_are_arrays(folder: Path, name: str) -> None:
    traced(lambda x: x * importlib.import_module(name).TWO)
    module = sys.modules[name]
    assert float(module.TWO) == 2.0
    assert not isinstance(module.SIN, jax.core.Tracer)


def test_a_module_that_fails_can_be_imported_again(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            traced(lambda x: importlib.import_module("that_fails"))


def test_modules_that_are_only_looked_up_leave_nothing(folder: Path) -> None:
    """Many modules of a zip file have one loader."""
    before = list(sys.meta_path)
    for _ in range(2000):
        with trace_imports.evaluated():
            importlib.util.find_spec("in_a_zip")
    assert sys.meta_path == before
    assert float(importlib.import_module("in_a_zip_too").TWO) == 2.0


def test_other_threads_import_as_ever(folder: Path) -> None:
    thread = threading.Thread(target=lambda: importlib.import_module("in_a_file"))

    def f(x: Any) -> Any:
        thread.start()
        thread.join()
        return x * sys.modules["in_a_file"].TWO

    assert traced(f).jaxpr.in_avals
    assert float(sys.modules["in_a_file"].TWO) == 2.0


def test_traces_within_traces(folder: Path) -> None:
    def inner(x: Any) -> Any:
        traced(lambda y: y)
        return x * importlib.import_module("in_a_file").TWO

    traced(inner)
    assert float(sys.modules["in_a_file"].TWO) == 2.0
