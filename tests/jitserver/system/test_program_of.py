"""The program of a process is what its user typed, without what started it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitserver.system.process_watch import program_of

PROGRAMS = {
    ("-c", "import time; time.sleep(99)", "--lr", "0.1"): "-c import time; time.sleep(99) --lr 0.1",
    ("-u", "-X", "utf8", "-c", "import time; time.sleep(99)"): "-c import time; time.sleep(99)",
}
TITLES = {
    "/usr/bin/python3 train.py --lr 0.1": "train.py --lr 0.1",
    "python3.12 -B -m project.train --lr 0.1": "-m project.train --lr 0.1",
    "python -m jitclient --report train.py --lr 0.1": "train.py --lr 0.1",
    "python -P -m jitserver run --package numpyro --report=json train.py --report": "train.py --report",
    "/env/bin/python /env/bin/jitserver run -m project.train --package x": "-m project.train --package x",
    "jitserver run train.py": "train.py",
    "python -m jitserver status": "-m jitserver status",
    "python": "python",
    "jitserver.run.helper /run/run-1.sock": "jitserver.run.helper /run/run-1.sock",
    "emacs -q": "emacs -q",
}


@pytest.mark.core
@pytest.mark.parametrize("words", PROGRAMS)
def test_arguments(words: tuple[str, ...], until: object) -> None:
    with subprocess.Popen([sys.executable, *words]) as process:
        try:
            until(lambda: program_of(process.pid) == PROGRAMS[words], "the process to have its program")  # type: ignore[operator]
        finally:
            process.kill()


@pytest.fixture
def of_title() -> Iterator[object]:
    """Gives the program of a process that has set its title to a text."""
    source = """
import setproctitle, sys
while title := sys.stdin.readline().rstrip():
    setproctitle.setproctitle(title)
    print("set", flush=True)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", source], text=True, **pipes) as process:

        def of(title: str) -> str:
            process.stdin.write(f"{title}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "set\n"
            return program_of(process.pid)

        yield of
        process.stdin.close()


@pytest.mark.core
def test_titles(of_title: object) -> None:
    assert {title: of_title(title) for title in TITLES} == TITLES  # type: ignore[operator]


@pytest.mark.core
@pytest.mark.parametrize("notebook", ["", "/home/alice/fit.ipynb"])
def test_the_program_of_a_kernel_is_its_notebook(notebook: str, tmp_path: Path) -> None:
    (tmp_path / "ipykernel_launcher.py").write_text("print('begins', flush=True); input()")
    # The second variable is as Jupyter's server sets it for a kernel.
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "JPY_SESSION_NAME": notebook}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    words = [sys.executable, "-m", "ipykernel_launcher", "-f", "/run/kernel-1.json"]
    with subprocess.Popen(words, env=env, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        assert program_of(process.pid) == (notebook or "notebook")
        process.communicate("\n")


@pytest.mark.core
def test_a_process_that_has_exited_has_no_program() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert program_of(process.pid) == ""
