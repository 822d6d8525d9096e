"""Which report a program has at its end: that of the option, of the variable, or none."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jitclient.api import program_end
from jitclient.calls import exit_summary
from jitclient.core import events
from jitclient.core.events import Log, Started
from jitclient.core.settings import report, settings, use_report
from jitclient.errors import SettingsError


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None] | None]]:
    """The reports of the programs that begin."""
    found: list[Callable[[], None] | None] = []
    monkeypatch.setattr(exit_summary, "begin", lambda report, _: found.append(report))
    monkeypatch.setattr(events, "log", Log())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    settings.cache_clear()
    yield found
    settings.cache_clear()
    use_report("")


def test_the_option_comes_before_the_variable(
    begun: list[Callable[[], None] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITSERVER_REPORT", "run.html")
    program_end.begin(Started("a.py"), "json")
    assert begun != [None]
    assert not events.log.is_asked
    program_end.begin(Started("a.py"), "")
    assert events.log.is_asked


@pytest.mark.parametrize("form", ["lines", "off"])
def test_lines_are_no_report_at_the_end(begun: list[Callable[[], None] | None], form: str) -> None:
    program_end.begin(Started("a.py"), form)
    assert begun == [None]
    assert report() == form


def test_without_either_there_is_none(begun: list[Callable[[], None] | None]) -> None:
    program_end.begin(Started("a.py"), "")
    assert begun == [None]
    assert not events.log.is_asked


def test_a_file_is_that_of_the_working_directory_at_the_start(
    begun: list[Callable[[], None] | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    program_end.begin(Started("a.py"), "run.json")
    monkeypatch.chdir("/")
    [write] = begun
    assert write is not None
    write()
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_another_value_of_the_variable_is_an_error(
    begun: list[Callable[[], None] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITSERVER_REPORT", "run.txt")
    with pytest.raises(SettingsError, match=r"JITSERVER_REPORT='run\.txt'"):
        program_end.begin(Started("a.py"), "")
    assert begun == []
