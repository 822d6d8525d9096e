"""Figures of programs on the disk: appended by many processes, bounded, and read whatever happened to the files."""

import collections
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jitclient.core import program_stats
from jitclient.core.program_stats import ProgramStats, append, full_months, recorded
from jitclient.errors import SettingsError

NOVEMBER = 1795651200.0  # 2026-11-26 00:00 UTC
DAY = 86400.0


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "cache"
    monkeypatch.setattr(program_stats, "cache_root", lambda: found)
    return found


def test_nothing_is_recorded_at_first() -> None:
    assert [*recorded()] == []
    assert full_months() == []


def test_programs_are_recorded_by_month_of_utc_for_this_user_alone(root: Path) -> None:
    programs = [
        ProgramStats(NOVEMBER, "/a.py", 1.5, 1, 2, 3.5, 4, 5.5, 6, 7, 8.5),
        ProgramStats(NOVEMBER + 5 * DAY - 1, "-m b"),
        ProgramStats(NOVEMBER + 5 * DAY, "notebook"),
    ]
    for one in programs:
        append(one)
    assert [*recorded()] == programs
    files = sorted((root / "stats").iterdir())
    assert [file.name for file in files] == ["2026-11.jsonl", "2026-12.jsonl"]
    assert {path.stat().st_mode & 0o777 for path in (root, root / "stats")} == {0o700}
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


DAMAGED = (
    b'{"at":1.0,"script":"cut sh',
    b"\0\xff\xfe",
    b"[]",
    b'{"at":-1.0,"script":"before time"}',
    b'{"at":1e300,"script":"beyond the calendar"}',
    b'{"at":1.0,"script":"x","saved":1e300}',
    b'{"at":1.0,"script":"x","found":-1}',
    b'{"script":"without a moment"}',
)


@pytest.mark.parametrize("line", DAMAGED)
def test_a_damaged_line_is_skipped_and_spoils_no_other(line: bytes, root: Path) -> None:
    before, after = ProgramStats(NOVEMBER, "before"), ProgramStats(NOVEMBER, "after")
    append(before)
    with (root / "stats" / "2026-11.jsonl").open("ab") as file:
        file.write(b"\n" + line)
    append(after)
    assert [*recorded()] == [before, after]


def test_fields_of_a_later_version_are_skipped(root: Path) -> None:
    append(ProgramStats(NOVEMBER, "before"))
    (root / "stats" / "2026-11.jsonl").write_bytes(b'{"at":1.0,"script":"x","later":[1]}')
    assert [*recorded()] == [ProgramStats(1.0, "x")]


@pytest.mark.parametrize("name", ["line\nbreak", os.fsdecode(b"/bytes/\xff.py"), "x" * 100_000])
def test_a_name_of_any_kind_is_one_line(name: str) -> None:
    append(ProgramStats(NOVEMBER, name))
    [one] = recorded()
    assert one.script == name[:1000].encode(errors="backslashreplace").decode()


APPENDS = """
import sys
from jitclient.core.program_stats import ProgramStats, append

print(flush=True)
sys.stdin.readline()
for number in range(500):
    append(ProgramStats(1795651200.0 + number, sys.argv[1] * 500))
"""


def test_programs_that_end_at_the_same_time_do_not_mix_their_lines(root: Path) -> None:
    env = {**os.environ, "JITSERVER_CACHE_DIR": str(root)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDS, str(number)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # it is ready
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 0
    assert collections.Counter(one.script[0] for one in recorded()) == {"0": 500, "1": 500, "2": 500}


def test_a_full_file_grows_no_more(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_stats, "MAX_FILE_BYTES", 10)
    for _ in range(3):
        append(ProgramStats(NOVEMBER, "a"))
        append(ProgramStats(NOVEMBER + 30 * DAY, "b"))
    assert [one.script for one in recorded()] == ["a", "b"]
    assert full_months() == ["2026-11", "2026-12"]


def test_the_oldest_months_are_deleted_and_no_other_file(root: Path) -> None:
    for month in range(30):
        append(ProgramStats(NOVEMBER + month * 31 * DAY, str(month)))
        (root / "stats" / "notes.txt").touch()
    assert [one.script for one in recorded()] == [str(month) for month in range(6, 30)]
    assert (root / "stats" / "notes.txt").exists()


def test_a_directory_that_cannot_be_used_is_an_error_for_writers_only(root: Path) -> None:
    root.mkdir()
    (root / "stats").touch()
    with pytest.raises((OSError, SettingsError)):
        append(ProgramStats(NOVEMBER, "a"))
    assert [*recorded()] == []
