"""Notebooks under `jitserver run`: the daemon serves their cells, and all else is as in Jupyter without it."""

import importlib.util
import json
from typing import Any

import pytest

MISSING = [name for name in ("ipykernel", "nbclient") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"NOT RUN: needs {', '.join(MISSING)}"),
]

STEP = "import jax\n@jax.jit\ndef step(x): return x + {}\nprint(type(step).__name__, float(step(1.0)))"

KERNEL = """
import jupyter_client

manager, client = jupyter_client.manager.start_new_kernel(startup_timeout=100)

def run(code, interrupts=False):
    shown = []
    def show(message):
        content = message["content"]
        if message["msg_type"] == "stream":
            shown.append(content["text"])
            if interrupts:
                manager.interrupt_kernel()
    answer = client.execute_interactive(code, output_hook=show, timeout=100)
    print("".join(shown), answer["content"].get("ename"))

cells = {cells!r}
try:
    for cell in cells:
        run(cell)
    run("print('begins', flush=True)\\nwhile True: pass", interrupts=True)
    run("print(float(step(1.0)))")
    manager.restart_kernel()
    client.wait_for_ready(timeout=100)
    run("step")
    run(cells[0])
finally:
    client.stop_channels()
    manager.shutdown_kernel()
"""
CELLS = [
    STEP.format(1),
    STEP.format(2),
    "import os, sys; print(__name__, sys.argv[0], sys.path[1:], os.getcwd())",
    "1 / 0",
]


@pytest.fixture
def variables(warm: Any, daemon: str) -> dict[str, str]:
    own = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    return {
        **warm.variables,
        "JITSERVER_ADDRESS": daemon,
        "PYTHONWARNINGS": "ignore",
        **{name: str(warm.folder / name) for name in own},
    }


def test_a_kernel_is_as_in_jupyter_and_its_cells_are_served(warm: Any, variables: dict[str, str]) -> None:
    script = warm.script(KERNEL.replace("{cells!r}", repr(CELLS)))
    plain = warm.plain(script, env=variables)
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout.count("PjitFunction") == 3
    assert "KeyboardInterrupt" in plain.stdout
    done = warm.run(script, env=variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout.replace("PjitFunction", "RemoteFunction")


def test_the_command_of_jupyter_runs_served_notebooks(warm: Any, variables: dict[str, str]) -> None:
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": STEP.format(3)}
    notebook = {"cells": [{**cell, "id": "one"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = warm.script(json.dumps(notebook), "notebook.ipynb")
    done = warm.run("jupyter", "execute", "--inplace", path, env=variables)
    assert done.returncode == 0, done.stderr
    (ran,) = json.loads((warm.folder / "notebook.ipynb").read_text())["cells"]
    assert "".join(ran["outputs"][-1]["text"]) == "RemoteFunction 4.0\n"
