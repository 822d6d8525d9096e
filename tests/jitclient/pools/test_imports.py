"""Imports of the driver's modules by a worker, and the sources that the driver sends; this process plays both."""

import importlib
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.directories import runtime_directory
from jitclient.errors import CaptureError
from jitclient.pools import sources
from jitclient.pools.imports import DriverModules
from jitclient.pools.messages import Source


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Installs a worker's finder for texts by name: with a path, the file is at that place in the driver."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    made: list[DriverModules] = []
    before = set(sys.modules)

    def install(texts: dict[str, tuple[str, bytes]], names: tuple[str, ...] = ()) -> DriverModules:
        def ask(name: str) -> tuple[Source, bytearray]:
            if name not in texts:
                return Source(name), bytearray()
            path, text = texts[name]
            return Source(name, found=True, is_package=path.endswith("__init__.py"), path=path), bytearray(text)

        made.append(DriverModules(ask, names))
        made[-1].install()
        return made[-1]

    yield install
    for each in made:
        each.remove_files()
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_module_that_the_host_lacks_is_laid_out_as_a_file(modules: Any) -> None:
    modules(
        {
            "pool_package": ("/elsewhere/pool_package/__init__.py", b"from . import part\n"),
            "pool_package.part": ("/elsewhere/pool_package/part.py", b"def f():\n    return __name__\n"),
        }
    )
    module = importlib.import_module("pool_package")
    assert module.part.f() == "pool_package.part"
    assert inspect.getsource(module.part.f) == "def f():\n    return __name__\n"
    assert Path(module.part.__file__).is_relative_to(runtime_directory() / "pool")


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_file_of_the_host_is_imported_only_if_it_is_the_drivers(modules: Any, tmp_path: Path, is_equal: bool) -> None:
    path = tmp_path / "pool_module.py"
    path.write_text("value = 1\n")
    modules({"pool_module": (str(path), b"value = 1\n" if is_equal else b"value = 2\n")})
    module = importlib.import_module("pool_module")
    assert (module.__file__ == str(path), module.value) == (is_equal, 1 if is_equal else 2)


def test_the_drivers_module_comes_before_another_of_that_name(modules: Any) -> None:
    modules({"this": ("/elsewhere/this.py", b"value = 1\n")}, names=("this",))
    assert importlib.import_module("this").value == 1


def test_a_module_that_nobody_has_is_missing(modules: Any) -> None:
    modules({})
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pool_module_that_is_nowhere")


def test_files_of_a_killed_worker_are_removed(modules: Any) -> None:
    base = runtime_directory() / "pool"
    alive = modules({})
    abandoned = base / "abandoned"
    abandoned.mkdir()
    (base / "abandoned.lock").touch()
    modules({})
    assert not abandoned.exists()
    assert alive._directory.exists()


def test_only_modules_of_the_program_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "pool_own.py").write_text("value = 1\n")
    (tmp_path / "pool_space").mkdir()
    found = sources.answer("pool_own")
    assert (found.message.found, found.text) == (True, b"value = 1\n")
    assert sources.answer("pool_space").message == Source("pool_space", found=True, is_package=True)
    for name in ("os", "numpy", "jitclient.errors", "__main__", "pool_nowhere"):
        assert sources.answer(name) == sources.Answer(Source(name)), name


def test_a_file_that_is_newer_than_the_running_code_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "pool_changed.py"
    path.write_text("class A:\n    def f(self):\n        return 1\n")
    module = importlib.import_module("pool_changed")
    try:
        assert sources.answer("pool_changed").message.found
        path.write_text("class A:\n    def f(self):\n        return 22\n")
        assert "has changed since" in sources.answer("pool_changed").message.failure
        importlib.reload(module)
        assert sources.answer("pool_changed").message.found
        path.unlink()
        assert "cannot be read" in sources.answer("pool_changed").message.failure
    finally:
        del sys.modules["pool_changed"]


def test_a_failure_of_the_driver_is_an_error_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    refusing = DriverModules(lambda name: (Source(name, failure="it has changed"), bytearray()), ["pool_refused"])
    refusing.install()
    with pytest.raises(CaptureError, match="it has changed"):
        importlib.import_module("pool_refused")
    refusing.remove_files()
    assert os.path.basename(refusing._directory) not in os.listdir(runtime_directory() / "pool")
