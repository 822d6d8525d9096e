"""A lab of hosts with their own homes and daemons, and a folder that they share; one of them is gone in the middle."""

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

    def claims():
        return glob.glob(f"{shared}/lab/**/claim", recursive=True)

    script = str(shared / "train.py")
    gone = on("h1", script)
    while not claims():
        assert gone.poll() is None, gone.communicate()
        time.sleep(0.01)
    subprocess.run([f"{os.environ['HOST']}/kill", "h1"], check=True)  # while it compiles
    gone.kill()  # ssh may wait for ever for a machine that is gone
    gone.communicate()
    assert claims()
    hosts = ["h2", "h3", "h4"]
    together = [on(host, script) for host in hosts]
    values = [said(process) for process in together]
    made = [status(host) for host in hosts]
    while not glob.glob(f"{shared}/lab/programs*/**/program", recursive=True) or claims():
        time.sleep(0.1)  # uploads are behind the calls
    values.append(said(on("h5", script)))
    print(json.dumps([values, made, status("h5")]))
"""


def test_hosts_that_start_together_compile_once_or_twice_although_one_is_gone(tmp_path: Path) -> None:
    values, made, last = inside("JITSERVER_TEST_HOSTS", ON_HOSTS, tmp_path, 560, HOSTS="5", SCRIPT=SCRIPT)
    assert all(value == values[0] for value in values)
    found = [status["share"]["found"] for status in made]
    assert [status["text_hits"] for status in made] == found
    # Two that find the same claim void may both compile.
    assert sum(found) in (1, 2)
    assert all(status["share"]["uploaded"] for status in made if not status["text_hits"])
    assert (last["traces"], last["compiles"], last["share"]["found"], last["share"]["uploaded"]) == (0, 0, 1, 0)
