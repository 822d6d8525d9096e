"""A lab of hosts with their own homes and daemons, and a folder that they share."""

from pathlib import Path

import pytest

from .test_pools_on_clusters import inside

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = """
import json
import jax.numpy as jnp
import jitclient

@jitclient.jit
def step(x, w):
    for n in range(100):  # XLA needs seconds for a long program
        x = jnp.tanh(x @ w + n)
        w = w.at[n % 8].add(jnp.sort(x[0]))
    return x

print(json.dumps(step(jnp.eye(8), jnp.ones((8, 8))).tolist()))
"""

ON_HOSTS = """
    import glob, json, os, pathlib, shlex, subprocess, sys, time

    shared = pathlib.Path(os.environ["SHARED"])
    env = {
        "JITSERVER_SHARE": f"file://{shared}/lab", "JITSERVER_SHARE_KEY": "a secret of the project",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "JITSERVER_ARRAY_MEMORY": "64",
    }
    (shared / "train.py").write_text(os.environ["SCRIPT"])

    def on(host, *words):
        command = ["env", *(f"{name}={value}" for name, value in env.items()), sys.executable, "-P", *words]
        return subprocess.Popen(["ssh", host, shlex.join(command)], stdout=subprocess.PIPE, text=True)

    def said(process):
        return json.loads(process.communicate()[0].splitlines()[-1])

    def status(host):
        return json.loads(on(host, "-m", "jitserver", "status", "--json").communicate()[0])

    script = str(shared / "train.py")
    hosts = ["h1", "h2", "h3"]
    together = [on(host, script) for host in hosts]
    values = [said(process) for process in together]
    while not glob.glob(f"{shared}/lab/programs*/**/program", recursive=True):
        time.sleep(0.1)  # uploads are behind the calls
    made = [status(host) for host in hosts]
    values.append(said(on("h4", script)))
    print(json.dumps([values, made, status("h4")]))
"""


def test_a_host_finds_what_others_made_together(tmp_path: Path) -> None:
    values, made, last = inside("JITSERVER_TEST_HOSTS", ON_HOSTS, tmp_path, 560, HOSTS="4", SCRIPT=SCRIPT)
    assert all(value == values[0] for value in values)
    assert any(status["share"]["uploaded"] for status in made)
    assert (last["traces"], last["compiles"], last["share"]["found"], last["share"]["uploaded"]) == (0, 0, 1, 0)
