"""The extension in JupyterLab: cells run, the kernel restarts, and the cells run again; and the stop button."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.settings import Settings
from jitclient.session.handshake import ask
from jitclient.wire.introspection import Snapshot
from jitclient.wire.messages import Verb

from .jupyterlab import MISSING, Notebook, chromium, running_lab, store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"NOT TESTED HERE: JupyterLab, without {', '.join(MISSING)} "
        "(pip install jupyterlab playwright; apt-get install chromium)",
    ),
]


@dataclasses.dataclass
class Lab:
    """JupyterLab with a daemon of its own, and a browser."""

    folder: Path
    address_of: Callable[[str], str]
    browser: Any

    def open(self, *cells: str) -> Notebook:
        store(self.folder / "notebook.ipynb", *cells)
        return Notebook(self.browser, self.address_of("notebook.ipynb"))


@pytest.fixture
def lab(own: Any, tmp_path: Path, until: Callable[..., Any]) -> Iterator[Lab]:
    with (
        own.serving(),
        running_lab(tmp_path, until, JITSERVER_ADDRESS=own.address) as address_of,
        chromium() as browser,
    ):
        yield Lab(tmp_path, address_of, browser)


def activity(own: Any) -> Snapshot:
    found: Snapshot = ask(Settings(address=own.address), Verb.SNAPSHOT, None, Snapshot)
    return found


TRAINING = """\
@jax.jit
def train(params, x, y):
    def loss(params):
        return jnp.mean((params["slope"] * x + params["height"] - y) ** 2)
    def step(params, _):
        value, slopes = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, slope: p - 0.1 * slope, params, slopes), value
    return jax.lax.scan(step, params, length=100)

x = jnp.linspace(-1, 1, 1000)
params, losses = train({"slope": 0.0, "height": 0.0}, x, 3 * x + 2)
print(f"{losses[-1]:.4f} {params['slope']:.2f} {params['height']:.2f}")
params["slope"]"""


def test_a_notebook_runs_again_in_a_new_kernel_and_nothing_is_made(lab: Lab, own: Any) -> None:
    setup = "%load_ext jitserver\nimport os, jax, jax.numpy as jnp"
    notebook = lab.open(setup, TRAINING, "%jitserver", "os.getpid()")
    notebook.run_all()
    pid = int(notebook.shows(3, r"^\d+$"))
    quiet, values, shown = map(notebook.output, range(3))
    assert quiet == ""
    assert values.startswith("0.0000 3.00 2.00\nArray(2.99")
    assert re.search(r"train\(f32\[\]\*, f32\[\]\*, f32\[1000\], f32\[1000\]\) +made in ", shown)
    made = own.counts()
    assert made["traces"] > 0

    notebook.restart_and_run_all()
    notebook.shows(3, rf"^(?!{pid}$)\d+$")
    assert [notebook.output(cell) for cell in range(2)] == [quiet, values]
    shown = notebook.output(2)
    assert re.search(r"train\(f32\[\]\*, f32\[\]\*, f32\[1000\], f32\[1000\]\) +found in memory, ", shown)
    assert " 0 made\n" in shown
    assert " 0 made in this process\n" in shown
    counted = ("misses", "traces", "compiles", "client_traces", "local_runs")
    assert [own.counts()[name] for name in counted] == [made[name] for name in counted]


FUNCTIONS = """\
%load_ext jitserver
import jax, jax.numpy as jnp
@jax.jit
def step(x): return x + 1
@jax.jit
def takes_long_to_trace(x):
    WAITS
    return x
@jax.jit
def takes_long_to_compile(x):
    x = x * jnp.ones((64, 64))
    for n in range(400):
        x = jnp.sin(x @ x) + jnp.fft.fft(x).real * n
    return x
@jax.jit
def endless(x): return jax.lax.while_loop(lambda y: y > 0, lambda y: y + 1, x)
x = step(0.0)"""
CALLS = ["takes_long_to_trace(x)", "takes_long_to_compile(x)", "float(endless(x))"]


def test_the_stop_button_interrupts_what_the_daemon_does_for_a_cell(
    lab: Lab, own: Any, gate: Any, until: Callable[..., Any]
) -> None:
    notebook = lab.open(FUNCTIONS.replace("WAITS", gate.waits), *CALLS, "x = step(x)\nfloat(x)")
    values = itertools.count(2)

    def works() -> None:
        notebook.run(4)
        notebook.shows(4, rf"^{next(values)}\.0$")

    notebook.run(0)
    works()
    notebook.interrupt()  # when the kernel does nothing
    works()
    for cell, phase in ((1, "tracing"), (2, "compiling")):
        notebook.run(cell)
        until(lambda phase=phase: [making.phase for making in activity(own).making] == [phase], phase)
        notebook.cells.nth(cell).locator("progress").wait_for()
        notebook.interrupt()
        assert "the daemon continues to compile takes_long_to_" in notebook.shows(cell, "KeyboardInterrupt")
        assert notebook.page.locator("progress").count() == 0
        gate.open()
        works()
    notebook.run(3)
    until(lambda: activity(own).running, "the call to run for long")
    notebook.interrupt()
    notebook.shows(3, "KeyboardInterrupt")
    works()
