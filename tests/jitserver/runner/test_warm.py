"""`jitserver warm`: a program runs at low priority, and later runs find what it made."""

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TRAIN = """
import sys
import jax
@jax.jit
def step(x): return x + 1
@jax.jit
def other(x): return x + 2
print(float(step(1.0)), float(other(2.0)), *sys.argv[1:])
"""


def test_a_later_run_finds_what_it_made(folder: Any) -> None:
    folder.write("train.py", TRAIN)
    done = folder.run("warm", "--wait", "--json", "train.py", "--lr", "1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["status"], found["ended_by"]) == (0, "program")
    assert found["programs"] == {"made": 2, "found": 0, "made_again": 0, "in_process": 0}
    assert Path(found["log"]).read_text() == "2.0 4.0 --lr 1\n"
    again = folder.run("run", "--fresh", "--report=json", "train.py")
    assert [row["level"] for row in json.loads(again.stderr)["programs"]] == ["memory", "memory"]
    text = folder.run("warm", "--wait", "train.py").stdout
    assert text.startswith("train.py ended after ")
    assert text.endswith("; programs: 0 made, 2 found\n")


WAITING = """
import os
print(os.getsid(0), os.getpriority(os.PRIO_PROCESS, 0), os.read(0, 10), file=open("started", "w"))
open("gate").read()
"""


def test_in_the_background_at_low_priority(folder: Any, until: Any) -> None:
    os.mkfifo(folder.path / "started")
    os.mkfifo(folder.path / "gate")
    folder.write("train.py", WAITING + TRAIN)
    done = folder.run("warm", "--json", "train.py")
    assert done.returncode == 0, done.stderr
    begun = json.loads(done.stdout)
    session, nice, given = (folder.path / "started").read_text().split()  # once the program is there
    stat = Path(f"/proc/{session}/stat").read_text().rpartition(")")[2].split()
    assert (nice, stat[16], given) == ("19", "19", "b''")
    assert os.getsid(begun["pid"]) == begun["pid"] != int(session)
    (folder.path / "gate").write_text("")
    log = Path(begun["log"])
    until(lambda: "programs: 2 made, 0 found" in log.read_text(), "the result in the log")
    assert log.read_text().startswith("2.0 4.0\ntrain.py ended after ")


def test_a_program_that_fails(folder: Any) -> None:
    folder.write("train.py", TRAIN + "\nprint('broken')\nsys.exit(7)\n")
    done = folder.run("warm", "--wait", "train.py")
    assert done.returncode == 7
    result, where = done.stdout.splitlines()
    assert result.startswith("train.py failed with status 7 after ")
    assert result.endswith("; programs: 2 made, 0 found")
    assert Path(where.removeprefix("its output is in ")).read_text() == "2.0 4.0\nbroken\n"


def test_a_program_that_is_killed(folder: Any) -> None:
    folder.write("train.py", "import os\nos.kill(os.getpid(), 9)\n")
    done = folder.run("warm", "--wait", "--json", "train.py")
    assert done.returncode == 128 + signal.SIGKILL
    assert json.loads(done.stdout)["programs"] is None


def test_an_endless_program_has_its_time(folder: Any) -> None:
    folder.write("train.py", "import signal\nwhile True: signal.pause()\n")
    done = folder.run("warm", "--wait", "--json", "--seconds", "0.5", "train.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ended_by"] == "time"


def test_ctrl_c_ends_the_program(folder: Any) -> None:
    os.mkfifo(folder.path / "started")
    folder.write("train.py", "import os, signal\nopen('started', 'w').write(str(os.getpid()))\nsignal.pause()\n")
    process = folder.start("warm", "--wait", "--json", "train.py")
    pid = int((folder.path / "started").read_text())
    process.send_signal(signal.SIGINT)
    assert json.loads(process.communicate()[0])["ended_by"] == "interrupt"
    assert process.returncode == 128 + signal.SIGINT
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


MISSING = [name for name in ("ipykernel", "nbclient") if importlib.util.find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"NOT RUN: needs {', '.join(MISSING)}")
def test_a_notebook(folder: Any) -> None:
    kernel = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
    spec = folder.path / "data" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({**kernel, "display_name": "Python"}))
    own = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")
    variables = {"JUPYTER_DATA_DIR": str(folder.path / "data"), **{name: str(folder.path / name) for name in own}}
    cells = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source, "id": f"c{at}"}
        for at, source in enumerate([TRAIN, "import os; print(os.getcwd())", "1 / 0", "print('after')"])
    ]
    notebook = folder.path / "inside" / "a.ipynb"
    notebook.parent.mkdir()
    notebook.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    before = notebook.read_bytes()
    done = folder.run("warm", "--wait", "--json", "inside/a.ipynb", env={**variables, "PYTHONWARNINGS": "ignore"})
    found = json.loads(done.stdout)
    assert (done.returncode, found["status"]) == (1, 1), done.stderr
    assert found["programs"] == {"made": 2, "found": 0, "made_again": 0, "in_process": 0}
    log = Path(found["log"]).read_text()
    assert str(notebook.parent) in log
    assert "ZeroDivisionError" in log
    assert "after" not in log
    assert notebook.read_bytes() == before
