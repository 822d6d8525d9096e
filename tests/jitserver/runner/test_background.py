"""One program at low priority: how it ends, and what its report counts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jitserver.runner import background
from jitserver.runner.background import Counts

PROGRAM = """
import signal, sys
{before}
sys.stdout.write("ready\\n")
sys.stdout.flush()
while True:
    signal.pause()
"""


class Ended(subprocess.Popen[bytes]):
    """A process whose time is over, or that the user interrupts, as soon as it is ready."""

    error: type[BaseException]
    is_ready = False

    def wait(self, timeout: float | None = None) -> int:
        if not self.is_ready:
            assert self.stdout is not None
            assert self.stdout.readline() == b"ready\n"
            self.is_ready = True
            raise self.error() if self.error is KeyboardInterrupt else subprocess.TimeoutExpired([], timeout or 0)
        return super().wait(timeout)


@pytest.fixture
def started() -> Iterator[Any]:
    processes: list[Ended] = []

    def start(before: str, error: type[BaseException]) -> Ended:
        words = [sys.executable, "-c", PROGRAM.format(before=before)]
        process = Ended(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        process.error = error
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.stdout.close()  # type: ignore[union-attr]
        subprocess.Popen.wait(process)  # with the true clock


@pytest.mark.parametrize(
    ("error", "why"), [(subprocess.TimeoutExpired, "time"), (KeyboardInterrupt, "interrupt")], ids=["time", "Ctrl-C"]
)
def test_a_program_is_ended_as_by_ctrl_c(started: Any, error: type[BaseException], why: str) -> None:
    process = started("", error)
    assert background.wait(process, 1.0) == why
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("before", "number"),
    [
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", signal.SIGTERM),
        ("for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)", signal.SIGKILL),
    ],
    ids=["SIGTERM", "SIGKILL"],
)
def test_a_program_that_ignores_ctrl_c(started: Any, before: str, number: signal.Signals) -> None:
    process = started(before, subprocess.TimeoutExpired)
    assert background.wait(process, 1.0, grace_seconds=0.01) == "time"
    assert process.returncode == -number


def test_a_program_that_ends_itself() -> None:
    process = background.start([sys.executable, "-c", "raise SystemExit(3)"], subprocess.DEVNULL)
    assert background.wait(process, None) == ""
    assert process.returncode == 3


def test_each_program_has_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    train = background.log_path(["train.py", "--lr", "1"])
    assert "-warm-train-" in train.name
    assert train == background.log_path(["train.py", "--lr", "1"])
    assert train != background.log_path(["train.py", "--lr", "2"])
    os.mkdir("folder")
    monkeypatch.chdir("folder")
    assert train != background.log_path(["train.py", "--lr", "1"])


def test_the_counts_of_a_report() -> None:
    row = '{"program": "f(f32[])", "level": "%s", "times": %d, "seconds": 0.1, "why": ""}'
    rows = [row % pair for pair in (("memory", 1), ("disk", 2), ("share", 4), ("made", 8), ("remade", 16))]
    local = '{"function": "f", "what": "traced", "times": 1, "why": ""}'
    report = f'{{"saved_seconds": 1.0, "programs": [{", ".join(rows)}], "local": [{local}]}}'
    assert background.counts(report.encode()) == Counts(made=8, found=7, made_again=16, in_process=1)
    assert background.counts(b"") is None
