"""Imports on the time line: the outermost of a package, and their modules are as without it."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from jitclient.core import import_times, timeline
from jitclient.core.spans import Timeline


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Timeline]:
    (tmp_path / "outer_package").mkdir()
    (tmp_path / "outer_package" / "__init__.py").write_text("from . import part\nimport inner_module\n")
    (tmp_path / "outer_package" / "part.py").write_text("")
    (tmp_path / "inner_module.py").write_text("")
    (tmp_path / "failing_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(timeline, "current", Timeline())
    monkeypatch.setattr(import_times, "MIN_NANOSECONDS", 0)
    import_times.observe()
    assert timeline.current is not None
    yield timeline.current
    for name in ("outer_package", "outer_package.part", "inner_module", "failing_module"):
        sys.modules.pop(name, None)


def imports(line: Timeline) -> list[str]:
    return [span.label for span in line.spans if span.kind == "import"]


def test_the_outermost_import_of_each_package_is_added(line: Timeline) -> None:
    importlib.import_module("outer_package")
    assert imports(line) == ["inner_module", "outer_package"]
    importlib.import_module("outer_package")
    assert len(imports(line)) == 2


def test_short_imports_and_those_of_python_are_left_out(line: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    importlib.import_module("colorsys")
    monkeypatch.setattr(import_times, "MIN_NANOSECONDS", 10**15)
    importlib.import_module("outer_package")
    assert imports(line) == []


def test_a_module_has_its_own_loader(line: Timeline) -> None:
    module = importlib.import_module("inner_module")
    assert type(module.__loader__) is type(module.__spec__.loader) is SourceFileLoader
    assert importlib.reload(module) is module


def test_a_spec_that_is_only_looked_up_works(line: Timeline) -> None:
    spec = importlib.util.find_spec("inner_module")
    assert spec is not None
    assert spec.loader is not None
    assert spec.loader.get_filename() == spec.origin  # type: ignore[attr-defined]
    assert importlib.util.find_spec("no_such_module") is None
    assert imports(line) == []


def test_an_import_that_fails_raises_its_error_and_is_added(line: Timeline) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            importlib.import_module("failing_module")
    assert imports(line) == ["failing_module"] * 2


def test_a_finder_that_asks_all_others_is_no_endless_loop(line: Timeline) -> None:
    class Asking:
        def find_spec(self, name: str, path: object = None, target: object = None) -> object:
            others = (finder for finder in sys.meta_path if finder is not self)
            return next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)  # type: ignore

    sys.meta_path.insert(1, Asking())  # type: ignore[arg-type]
    importlib.import_module("inner_module")
    assert imports(line) == ["inner_module"]


def test_imports_are_observed_once(line: Timeline) -> None:
    before = len(sys.meta_path)
    import_times.observe()
    assert len(sys.meta_path) == before
