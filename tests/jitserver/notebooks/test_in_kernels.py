"""The extension in kernels of Jupyter: a notebook runs, its kernel restarts, and it runs again."""

import importlib.util
from typing import Any

import pytest

MISSING = [name for name in ("ipykernel", "nbclient") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"NOT RUN: needs {', '.join(MISSING)}"),
]

NOTEBOOK = """
import json
import nbclient, nbformat

SETUP = '''%load_ext jitserver
import time, jax, jax.numpy as jnp
@jax.jit
def step(params, x):
    time.sleep(1)  # the first trace takes long enough for a line
    return jnp.sum(params * x)
x = jnp.ones(3)'''
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

cells = "%%jit_explain\\nstep(params, x)", "print(float(step(params, x)))", "%jitserver"
print(json.dumps([ran(SETUP, params, *cells), ran(SETUP, again, *cells)]))
"""


def test_a_restarted_kernel_finds_programs_and_arrays(own: Any) -> None:
    with own.serving():
        (first, lines), (second, others) = own.run(NOTEBOOK)
        assert own.counts()["traces"] == 1
    assert "step(f32[3], f32[3]): miss" in first
    assert "step(f32[3], f32[3]): hit" in second
    assert "\n3.0\n" in first
    assert "\n3.0\n" in second
    assert "found in memory" in second
    assert set(lines) == {""}  # a line was there, and has disappeared
    assert not others
