"""Picture of a notebook in JupyterLab after its kernel has restarted, for the documentation.

`python -m tests.jitserver.notebooks.picture FILE ADDRESS` needs what the tests in JupyterLab need, and serves a daemon
at the address, which the picture shows.
"""

import os
import sys
import tempfile
from pathlib import Path

from ...conftest import wait_until
from ...running_daemon import run_daemon
from .jupyterlab import Notebook, chromium, running_lab, store

CELLS = (
    """\
%load_ext jitserver
import jax, jax.numpy as jnp""",
    """\
def init(key):
    first, second = jax.random.split(key)
    return [jax.random.normal(first, (1, 64)), jax.random.normal(second, (64, 1)) / 8]

def loss_of(params, x, y):
    return jnp.mean((jnp.tanh(x @ params[0]) @ params[1] - y) ** 2)

@jax.jit
def train(params, x, y):
    def step(params, _):
        loss, slopes = jax.value_and_grad(loss_of)(params, x, y)
        return [w - 0.05 * slope for w, slope in zip(params, slopes)], loss
    return jax.lax.scan(step, params, length=2000)""",
    """\
x = jnp.linspace(-2, 2, 400)[:, None]
params, losses = train(init(jax.random.key(0)), x, jnp.sin(2 * x))
losses[::400]""",
    "%jitserver",
)


def take(picture: Path, address: str) -> None:
    """Run the notebook in two kernels, and store what it looks like then."""
    with tempfile.TemporaryDirectory(prefix="js-") as name, run_daemon(address):
        folder = Path(name)
        for variable in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
            path = folder / variable
            path.mkdir(mode=0o700)
            os.environ[variable] = str(path)
        store(folder / "fit.ipynb", *CELLS)
        with running_lab(folder, wait_until, JITSERVER_ADDRESS=address) as address_of, chromium() as browser:
            notebook = Notebook(browser, address_of("fit.ipynb"))
            notebook.run_all()
            notebook.shows(3, r"\bmade in\b")
            notebook.restart_and_run_all()
            notebook.shows(3, "found in memory")
            notebook.page.mouse.move(0, 0)
            notebook.save(picture)


if __name__ == "__main__":
    take(Path(sys.argv[1]), sys.argv[2])
