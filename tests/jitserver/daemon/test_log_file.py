"""The log file of a daemon: reopened on request, and within its limit."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from jitserver.daemon.log_file import LogFile
log_file = LogFile.of_stderr()
assert log_file is not None
log_file._max_bytes = 1000
"""


def run(path: Path, source: str) -> None:
    with open(path, "ab") as file:
        subprocess.run([sys.executable, "-P", "-c", PROGRAM + source], stdout=file, stderr=file, check=True, timeout=60)


def test_after_a_rotation_by_others_the_log_goes_to_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    run(
        path,
        f"""
print("before", file=sys.stderr)
os.rename({str(path)!r}, {str(tmp_path / "moved")!r})
print("still", file=sys.stderr)
log_file.reopen()
print("after", file=sys.stderr)
""",
    )
    assert (tmp_path / "moved").read_text() == "before\nstill\n"
    assert path.read_text() == "after\n"
    assert path.stat().st_mode & 0o077 == 0


def test_a_log_that_grows_keeps_its_last_part(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    run(
        path,
        """
for number in range(1000):
    print(f"line {number}", file=sys.stderr, flush=True)
    log_file.limit()
""",
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["d.log", "d.old.log"]
    lines = (tmp_path / "d.old.log").read_text().splitlines() + path.read_text().splitlines()
    assert lines == [f"line {number}" for number in range(1000 - len(lines), 1000)]
    assert 1000 < sum(file.stat().st_size for file in tmp_path.iterdir()) < 2100


def test_what_is_no_file_is_left_alone() -> None:
    program = "from jitserver.daemon.log_file import LogFile; print(LogFile.of_stderr())"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "None\n"
