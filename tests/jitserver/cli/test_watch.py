"""`jitserver watch`: a program runs again when a file that it uses is saved."""

import os
import pty
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from jitserver.cli.watch import Watcher

TRAIN = """
import jax, jax.numpy as jnp
from model import loss
@jax.jit
def step(x): return loss(x)
print(float(step(jnp.ones(3))))
"""
MODEL = """
def loss(x): return (x * 3.0).sum()
"""
PRINTS = "import model\nprint(model.VALUE)"
WAITS = "jitserver: ended with status"
WORDS = ("watch", "--fresh")
"""Without a helper, which would outlive the test."""


class Folder:
    """Folder of programs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._started: list[subprocess.Popen[str]] = []

    def write(self, name: str, source: str) -> None:
        """Save a file, as editors do that replace it."""
        newer = (self.path / name).with_suffix(".saving")
        newer.write_text(textwrap.dedent(source))
        newer.replace(self.path / name)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command without a controlling terminal; stdout has both of its streams."""
        process = subprocess.Popen(
            [sys.executable, "-m", "jitserver", *words],
            cwd=self.path,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.close()


def until_line(process: Any, text: str) -> list[str]:
    """Return the lines of a process up to one with this text."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if text in line:
            return lines
    raise AssertionError(f"the command ended before {text!r}: {lines}")


@pytest.mark.slow
def test_each_run_says_what_changed(folder: Folder, shared_daemon: str) -> None:
    folder.write("model.py", MODEL)
    folder.write("train.py", TRAIN)
    process = folder.start(*WORDS, "train.py")
    made, result, end = until_line(process, WAITS)
    assert made.startswith("jitserver: step(f32[3])  compiled in ")
    assert (result, end) == ("9.0", "jitserver: ended with status 0. Save one of its 2 files to run it")
    folder.write("model.py", MODEL.replace("sum", "mean"))
    changed, made, result, _ = until_line(process, WAITS)
    assert changed == "jitserver: changed: model.py"
    assert "loss: code changed (model.py:2)" in made
    assert result == "3.0"
    process.send_signal(signal.SIGINT)
    assert process.wait() == 0


@pytest.mark.slow
def test_files_however_they_are_saved(folder: Folder) -> None:
    folder.write("model.py", "VALUE = 1\n")
    folder.write("train.py", PRINTS)
    process = folder.start(*WORDS, "train.py")
    assert until_line(process, WAITS)[0] == "1"
    (folder.path / "model.py").write_text("VALUE = 2\n")  # in place
    assert until_line(process, WAITS)[1] == "2"
    folder.write("train.py", PRINTS)  # without a change
    assert until_line(process, WAITS)[:2] == ["jitserver: changed: train.py", "2"]
    (folder.path / "model.py").unlink()
    folder.write("model.py", "VALUE = 3\n")
    assert until_line(process, WAITS)[1] == "3"
    folder.write("train.py", "print(4)")
    assert until_line(process, WAITS)[-1].endswith("Save its file to run it")


@pytest.mark.slow
def test_a_syntax_error_can_be_mended(folder: Folder) -> None:
    folder.write("model.py", "VALUE = (\n")
    folder.write("train.py", PRINTS)
    process = folder.start(*WORDS, "train.py")
    assert until_line(process, WAITS)[-1].endswith("status 1. Save one of its 2 files to run it")
    folder.write("model.py", "VALUE = 5\n")
    assert until_line(process, WAITS)[1] == "5"


ENDLESS = """
import signal
print("version 1")
while True:
    signal.pause()
"""


@pytest.mark.slow
def test_a_run_that_has_not_ended_is_interrupted(folder: Folder) -> None:
    folder.write("late.py", "print('late 1')\n")
    folder.write("train.py", "import late\n" + ENDLESS)
    process = folder.start(*WORDS, "train.py")
    until_line(process, "version 1")
    folder.write("late.py", "print('late 2')\n")
    lines = until_line(process, "version 1")
    assert "KeyboardInterrupt" in " ".join(lines)
    assert lines[-3:-1] == ["jitserver: changed: late.py", "late 2"]
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT


@pytest.mark.slow
def test_sigterm_ends_the_run(folder: Folder) -> None:
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
        Watcher(["train.py"], "train.py", grace_seconds=0.01)._end(process, is_told=False)
        assert process.returncode == -signal.SIGKILL


TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "jitserver", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_ends_the_run_and_the_command(folder: Folder) -> None:
    folder.write("train.py", ENDLESS)
    outer, inner = pty.openpty()
    words = [sys.executable, "-c", TERMINAL, *WORDS, "train.py"]
    process = subprocess.Popen(words, cwd=folder.path, stdin=inner, stdout=inner, stderr=inner, close_fds=True)
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


def test_watch_without_watchfiles(here: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    script = tmp_path / "train.py"
    script.write_text("")
    done = here("watch", str(script))
    assert done.exit_code == 1
    assert "pip install 'jitserver[watch]'" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "There is no program to run."),
        (["-m"], "There is no program to run."),
        (["--package", "numpyro"], "There is no program to run."),
        (["--no-such-option", "x.py"], "No such option"),
        (["missing.py"], "There is no program 'missing.py'."),
    ],
)
def test_words_without_a_program(here: Callable[..., Result], words: list[str], message: str) -> None:
    done = here("watch", *words)
    assert done.exit_code == 2
    assert message in done.output
