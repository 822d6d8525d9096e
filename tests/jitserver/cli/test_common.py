"""Plain tables are printed without rich, with the same result."""

import io
import sys
from typing import Any

import click
import pytest

from jitserver.cli import common

ROWS = [["daemon", "pid 12"], ["", "cpu:0 cpu, cpu:1 cpu"]]


def drawn_by_rich(*table: Any) -> str:
    console = common.console()
    with console.capture() as captured:
        console.print(common.table(*table), markup=False)
    return captured.get()


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in click.unstyle(text).splitlines()]


@pytest.mark.parametrize("rows", [ROWS, [["名前", "é"], *ROWS], []], ids=["plain", "wide characters", "empty"])
def test_a_table_is_printed_as_rich_would(rows: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["jitserver", "runs"]
    common.print_table(columns, rows)
    assert lines_of(capsys.readouterr().out) == lines_of(drawn_by_rich("", columns, rows))


@pytest.mark.parametrize(("columns", "folded"), [("80", False), ("20", True)])
def test_a_table_that_is_too_wide_for_the_terminal_is_folded(
    columns: str, folded: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    common.print_table(["jitserver", "runs"], ROWS)
    lines = lines_of(capsys.readouterr().out)
    assert (len(lines) > 3 + len(ROWS) + 1) == folded
    assert max(map(len, lines)) <= int(columns)


def test_a_table_is_printed_in_ascii_where_lines_cannot_be_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        common.print_table(["jitserver", "runs"], ROWS)  # raises nothing
        stdout.seek(0)
        assert "pid 12" in stdout.read()
