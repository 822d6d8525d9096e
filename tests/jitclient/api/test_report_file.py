"""The file of a report: replaced as a whole, or one notice."""

import os
import stat
from pathlib import Path

import pytest

from jitclient.api import report_file
from jitclient.calls.usage import Usage
from jitclient.jaxside.compile_events import CompileEvents

from .run_records import made_run, record


def write(path: Path) -> None:
    report_file.write_report(str(path), made_run()[0], "train.py", (), None, "")


def test_a_file_is_replaced_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # This process has events and programs of other tests.
    monkeypatch.setattr(report_file, "compile_events", CompileEvents())
    monkeypatch.setattr(report_file, "usage", Usage())
    path, umask = tmp_path / "run.json", os.umask(0o027)
    try:
        path.write_text("before")
        before = path.stat().st_ino
        write(path)
    finally:
        os.umask(umask)
    assert path.read_text().startswith('{"traceEvents"')
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
    assert capsys.readouterr().err == f"jitserver: 0 ms saved, 1 found, 1 made; report: {path}\n"


def test_the_suffix_decides() -> None:
    assert report_file.encoded(record(), "a.html").startswith(b"<!doctype html>")
    assert report_file.encoded(record(), "a.json").startswith(b"{")


def test_a_mistake_of_ours_is_one_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_file, "record_of", lambda *_: 1 / 0)
    write(tmp_path / "run.html")
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("run.html was not written (ZeroDivisionError: division by zero). Please report this.")


def test_a_file_that_cannot_be_written_is_one_notice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.html").mkdir()
    for path, why in (
        (tmp_path / "run.html", "it is a directory"),
        (tmp_path / "no" / "r.html", "No such file or dir"),
    ):
        write(path)
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"jitserver: the report {path} was not written ({why}")
    assert [each.name for each in tmp_path.iterdir()] == ["run.html"]
