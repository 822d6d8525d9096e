"""The imports of a run: the outermost of a package, and their modules are as without it."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

from jitclient.core import events, import_times
from jitclient.core.events import Log


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    (tmp_path / "outer_package").mkdir()
    (tmp_path / "outer_package" / "__init__.py").write_text("from . import part\nimport inner_module\n")
    (tmp_path / "outer_package" / "part.py").write_text("")
    (tmp_path / "inner_module.py").write_text("")
    (tmp_path / "failing_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(events, "log", Log())
    events.log.ask()
    monkeypatch.setattr(import_times, "MIN_NANOSECONDS", 0)
    import_times.observe()
    yield events.log
    for name in ("outer_package", "outer_package.part", "inner_module", "failing_module"):
        sys.modules.pop(name, None)


def imports(log: Log) -> list[str]:
    return [event.label for event in log.events if event.kind == "import"]


def test_the_outermost_import_of_each_package_is_added(log: Log) -> None:
    importlib.import_module("outer_package")
    assert imports(log) == ["inner_module", "outer_package"]
    importlib.import_module("outer_package")
    assert len(imports(log)) == 2


def test_short_imports_and_those_of_python_are_left_out(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    importlib.import_module("colorsys")
    monkeypatch.setattr(import_times, "MIN_NANOSECONDS", 10**15)
    importlib.import_module("outer_package")
    assert imports(log) == []


def test_a_module_has_its_own_loader(log: Log) -> None:
    module = importlib.import_module("inner_module")
    assert type(module.__loader__) is type(module.__spec__.loader) is SourceFileLoader
    assert importlib.reload(module) is module


def test_a_spec_that_is_only_looked_up_works(log: Log) -> None:
    spec = importlib.util.find_spec("inner_module")
    assert spec is not None
    assert spec.loader is not None
    assert spec.loader.get_filename() == spec.origin  # type: ignore[attr-defined]
    assert importlib.util.find_spec("no_such_module") is None
    assert imports(log) == []


def test_an_import_that_fails_raises_its_error_and_is_added(log: Log) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            importlib.import_module("failing_module")
    assert imports(log) == ["failing_module"] * 2


def test_a_finder_that_asks_all_others_is_no_endless_loop(log: Log) -> None:
    class Asking:
        def find_spec(self, name: str, path: object = None, target: object = None) -> object:
            others = (finder for finder in sys.meta_path if finder is not self)
            return next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)  # type: ignore

    sys.meta_path.insert(1, Asking())  # type: ignore[arg-type]
    importlib.import_module("inner_module")
    assert imports(log) == ["inner_module"]


def test_imports_are_observed_once(log: Log) -> None:
    before = len(sys.meta_path)
    import_times.observe()
    assert len(sys.meta_path) == before


def test_another_finder_may_replace_the_work_of_a_loader_too(log: Log) -> None:
    class Replacing:
        def find_spec(self, name: str, *rest: Any) -> Any:
            mine: Any = self
            later = sys.meta_path[sys.meta_path.index(mine) + 1 :]
            spec: Any = next(filter(None, (finder.find_spec(name, *rest) for finder in later)))
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                del spec.loader.exec_module
                load(module)

            spec.loader.exec_module = exec_module
            return spec

    finder: Any = Replacing()
    for position in (0, 1):
        sys.meta_path.insert(position, finder)
        module = importlib.import_module("inner_module")
        assert "exec_module" not in vars(module.__loader__)
        del sys.meta_path[position], sys.modules["inner_module"]
    assert imports(log) == ["inner_module"] * 2


def test_modules_with_one_loader_are_timed(log: Log) -> None:
    class Finder(SourceFileLoader):
        def find_spec(self, name: str, *_: Any) -> Any:
            is_mine = name in ("failing_module", "inner_module")
            return importlib.util.spec_from_loader(name, self) if is_mine else None

        def get_filename(self, name: str | None = None) -> str:
            return f"{self.path}/{name}.py"

        def get_data(self, path: str) -> bytes:
            return b"import inner_module" if "failing" in path else b""

    finder: Any = Finder("", sys.path[0])
    sys.meta_path.insert(1, finder)
    importlib.util.find_spec("failing_module")
    importlib.import_module("failing_module")
    assert imports(log) == ["inner_module", "failing_module"]
    assert "exec_module" not in vars(finder)
