"""`jitserver watch`: a program runs again when a file that it uses is saved, and lines say what changed."""

import os
import pty
import signal
import subprocess
import sys
from typing import Any

import pytest

from jitserver.runner.watching import Watch

watchfiles = pytest.importorskip("watchfiles", reason="NOT RUN: needs watchfiles")

pytestmark = pytest.mark.slow

MODEL = """
WIDTH = 3.0
def loss(x):
    return (x * WIDTH).sum()
"""
TRAIN = """
import jax, jax.numpy as jnp
from model import loss
@jax.jit
def step(x): return loss(x)
@jax.jit
def other(x): return x + 1
print(float(step(jnp.ones(3))), float(other(jnp.float32(1))))
"""
WAITS = "jitserver: ended with status"
WORDS = ("watch", "--fresh", "--debounce", "50")
"""Without a helper, which would outlive the test."""


def until_line(process: Any, text: str) -> list[str]:
    """Return the lines of a process up to one with this text."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError(f"the command ended before {text!r}: {lines}")


@pytest.fixture
def watched(folder: Any) -> Any:
    """A watched training script that has run once, and whose programs are on the disk."""
    folder.write("model.py", MODEL)
    folder.write("train.py", TRAIN)
    process = folder.start(*WORDS, "train.py")
    assert until_line(process, WAITS) == [
        "9.0 2.0",
        "jitserver: ended with status 0. Save one of its 2 files to run it",
    ]
    folder.programs_on_disk(2)
    return process


def test_it_says_what_changed_and_runs_again(folder: Any, watched: Any) -> None:
    folder.write("train.py", TRAIN.replace("x + 1", "x + 2"))
    changed, programs, result, _ = until_line(watched, WAITS)
    assert changed == "jitserver: changed: other in train.py"
    assert programs.startswith("jitserver: programs: other(f32[]) uses what changed (was made in ")
    assert programs.endswith("); 1 stays")
    assert result == "9.0 3.0"
    folder.write("model.py", MODEL.replace("sum", "mean"))
    changed, programs, result, _ = until_line(watched, WAITS)
    assert changed == "jitserver: changed: loss in model.py"
    assert programs.startswith("jitserver: programs: step(f32[3]) uses what changed")
    assert result == "3.0 3.0"
    watched.send_signal(signal.SIGINT)
    assert watched.wait() == 0


def test_what_no_program_sees_and_what_any_may_see(folder: Any, watched: Any) -> None:
    with open(folder.path / "model.py", "a") as file:  # in place
        file.write("# a comment\n")
    assert until_line(watched, WAITS)[:-1] == [
        "jitserver: changed: only comments, docstrings or layout in model.py",
        "jitserver: programs: 2 stay",
        "9.0 2.0",
    ]
    folder.write("model.py", MODEL.replace("3.0", "4.0"))
    assert until_line(watched, WAITS)[:-1] == [
        "jitserver: changed: module-level code in model.py",
        "jitserver: programs: 2 may change",
        "12.0 2.0",
    ]


def test_a_syntax_error_is_said_by_the_run_and_can_be_mended(folder: Any, watched: Any) -> None:
    folder.write("train.py", TRAIN.replace("x + 1", "x +"))
    lines = until_line(watched, WAITS)
    assert lines[0] == "jitserver: changed: train.py, which is not valid Python"
    assert "SyntaxError" in lines[-2]
    assert lines[-1].startswith("jitserver: ended with status 1.")
    folder.write("train.py", TRAIN.replace("x + 1", "x + 3"))
    changed, programs, result, _ = until_line(watched, WAITS)
    assert changed == "jitserver: changed: other in train.py"
    assert "other(f32[]) uses what changed" in programs
    assert result == "9.0 4.0"


ENDLESS = """
import signal
print("version 1")
while True:
    signal.pause()
"""


def test_a_run_that_has_not_ended_is_interrupted(folder: Any) -> None:
    folder.write("train.py", ENDLESS)
    process = folder.start(*WORDS, "train.py")
    until_line(process, "version 1")
    folder.write("train.py", ENDLESS.replace("1", "2"))
    lines = until_line(process, "version 2")
    assert "KeyboardInterrupt" in " ".join(lines)
    assert lines[-2] == "jitserver: changed: module-level code in train.py"
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT


def test_a_module_is_watched_before_the_end_of_the_first_run(folder: Any) -> None:
    folder.write("late.py", "print('late 1')\n")
    folder.write("train.py", "import late\n" + ENDLESS)
    process = folder.start(*WORDS, "train.py")
    until_line(process, "version 1")
    folder.write("late.py", "print('late 2')\n")
    assert "jitserver: changed: " in until_line(process, "late 2")[-2]


def test_the_first_run_may_fail(folder: Any) -> None:
    folder.write("model.py", "raise SystemExit(5)\n")
    folder.write("train.py", TRAIN)
    process = folder.start(*WORDS, "train.py")
    until_line(process, "ended with status 5. Save one of its 2 files")
    folder.write("model.py", MODEL)
    assert until_line(process, WAITS)[-2] == "9.0 2.0"


def test_sigterm_ends_the_run(folder: Any) -> None:
    folder.write("train.py", "import os\nprint('pid', os.getpid())\n" + ENDLESS)
    process = folder.start(*WORDS, "train.py")
    pid = int(until_line(process, "pid ")[-1].split()[1])
    until_line(process, "version 1")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGINT
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


DEAF = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_run_that_ignores_ctrl_c_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        Watch(["train.py"], "train.py", 50, grace_seconds=0.01)._end(process, is_told=False)
        assert process.returncode == -signal.SIGKILL


TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "jitserver", *sys.argv[1:]])
"""


def test_ctrl_c_on_a_terminal_ends_the_run_and_the_command(folder: Any) -> None:
    folder.write("train.py", ENDLESS)
    outer, inner = pty.openpty()
    words = [sys.executable, "-c", TERMINAL, *WORDS, "train.py"]
    process = subprocess.Popen(
        words, cwd=folder.path, env=folder.variables, stdin=inner, stdout=inner, stderr=inner, close_fds=True
    )
    os.close(inner)
    try:
        shown = b""
        while b"version 1" not in shown:
            shown += os.read(outer, 1000)
        os.write(outer, b"\x03")
        assert process.wait() == -signal.SIGINT
    finally:
        process.kill()
        process.wait()
        os.close(outer)
