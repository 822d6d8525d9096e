"""The extension in kernels of Jupyter: a notebook runs, its kernel restarts, and it runs again."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

MISSING = [name for name in ("ipykernel", "nbclient") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"NOT RUN: needs {', '.join(MISSING)}"),
]

NOTEBOOK = """
import json, sys
import nbclient, nbformat

SETUP = '''%load_ext jitserver
import os, jax, jax.numpy as jnp
from jitclient.core import progress
from jitserver import notebooks
shows = notebooks.display
def display(*args, **kwargs):
    shown = shows(*args, **kwargs)
    os.open(GATE, os.O_RDONLY | os.O_NONBLOCK)  # now the trace may end
    return shown
notebooks.display, progress.PATIENCE_SECONDS = display, 0.0
@jax.jit
def step(params, x):
    WAITS
    return jnp.sum(params * x)
x = jnp.ones(3)'''.replace("GATE", repr(sys.argv[1])).replace("WAITS", sys.argv[2])
params = "params = jnp.arange(3.0)\\n%jitserver keep params"
again = "%jitserver kept params"

def ran(*cells):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()  # a kernel of its own
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"], outputs
    printed = "".join(output.get("text", "") for output in outputs if output.get("name") == "stdout")
    return printed, [output.data["text/html"] for output in outputs if output.output_type == "display_data"]

cells = "print(float(step(params, x)))", "%jitserver"
print(json.dumps([ran(SETUP, params, *cells), ran(SETUP, again, *cells)]))
"""


def test_a_restarted_kernel_finds_programs_and_arrays(own: Any, gate: Any, tmp_path: Path) -> None:
    with own.serving():
        (first, lines), (second, others) = own.run(NOTEBOOK, str(tmp_path / "gate"), gate.waits_here)
        assert own.counts()["traces"] == 1
    assert first.startswith("3.0\n")
    assert "made in" in first
    assert second.startswith("3.0\n")
    assert "found in memory" in second
    assert set(lines) == {""}  # a line was there, and has disappeared
    assert set(others) <= {""}
