"""Pools on a Ray cluster of two nodes on this machine. Skipped where Ray is not installed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="NOT TESTED HERE: pools on Ray (pip install 'jitserver[ray]')"
    ),
]

CLUSTER = """
    import json, os, sys
    import ray
    from ray.cluster_utils import Cluster

    os.makedirs("/tmp/ray", exist_ok=True)  # Ray 2.60 writes a file there, wherever its own folder is
    node = {"num_cpus": 2, "num_gpus": 2, "object_store_memory": 80 << 20}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "temp_dir": sys.argv[1], **node, "num_gpus": 0},
    )
    second = cluster.add_node(**node)
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line == "kill\\n":
            cluster.remove_node(second, allow_graceful=False)
        elif line == "add\\n":
            second = cluster.add_node(**node)
        print("done", flush=True)
    cluster.shutdown()
"""


def found_in(printed: str) -> Any:
    """The list in the output of a program; Ray prints of processes that died, also behind it."""
    return json.loads(next(line for line in printed.splitlines() if line.startswith("[")))


class RayOfTwo:
    """A cluster whose first node has no accelerators, and whose second has two and can be killed."""

    def __init__(self, folder: str, daemon: str) -> None:
        self.env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "JITSERVER_ADDRESS": daemon}
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CLUSTER), folder],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.env["RAY_ADDRESS"] = self._line()
        assert self.env["RAY_ADDRESS"]

    def order(self, what: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._line() == "done"

    def run(self, program: str, folder: Path, *words: str) -> Any:
        """Runs a program, and returns the list that it prints."""
        path = folder / "program.py"
        path.write_text(textwrap.dedent(program))
        done = subprocess.run(
            [sys.executable, str(path), *words], env=self.env, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return found_in(done.stdout)

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def cluster(shared_daemon: str) -> Iterator[RayOfTwo]:
    with tempfile.TemporaryDirectory(prefix="js-") as folder:
        made = RayOfTwo(folder, shared_daemon)
        try:
            yield made
        finally:
            made.close()


SWEEP = """
    import json
    import numpy as np
    import jitclient

    def load():
        return np.arange(4, dtype=np.float32)

    @jitclient.jit
    def step(x, rate):
        return (x * rate).sum()

    def work(rate, data):
        return float(step(data, np.float32(rate)))

    with jitclient.pool("ray") as pool:
        data = pool.keep("data", load, deps=[])
        print(json.dumps(list(pool.map(work, range(20), [data] * 20))))
"""


def test_the_next_program_finds_programs_and_data(
    cluster: RayOfTwo, shared_daemon: str, tmp_path: Path, counts: Callable[..., dict[str, Any]]
) -> None:
    values = [6.0 * rate for rate in range(20)]
    assert cluster.run(SWEEP, tmp_path) == values
    first = counts(shared_daemon)
    assert cluster.run(SWEEP, tmp_path) == values
    again = counts(shared_daemon)
    assert (again["traces"], again["compiles"]) == (first["traces"], first["compiles"])


HOOK = """
    import json
    import ray, jax
    import jitclient

    jitclient.install()
    ray.init(runtime_env={"worker_process_setup_hook": jitclient.worker_setup()}, logging_level="error")

    @ray.remote
    def work():
        return type(jax.jit(lambda x: x)).__name__

    print(json.dumps([ray.get(work.remote())]))
"""


def test_a_program_of_ray_has_it_by_a_hook(cluster: RayOfTwo, tmp_path: Path) -> None:
    assert cluster.run(HOOK, tmp_path) == ["RemoteFunction"]


FAULTS = """
    import json, os, pathlib, signal, sys
    import numpy as np
    import jitclient

    folder = pathlib.Path(sys.argv[1])

    @jitclient.jit
    def double(x):
        return 2 * x

    def work(number):
        if number == 20 and not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(double(np.float32(number)))

    with jitclient.pool("ray", retries=1) as pool:
        futures = [pool.submit(work, number) for number in range(100)]
        values = [str(future.exception() or future.result())[:18] for future in futures]
    print(json.dumps(values))
"""


def test_a_worker_that_dies_is_replaced_and_a_task_that_kills_it_fails_alone(cluster: RayOfTwo, tmp_path: Path) -> None:
    found = cluster.run(FAULTS, tmp_path, str(tmp_path))
    assert (tmp_path / "killed").exists()
    assert found.pop(40) == "work: its worker d"
    assert found == [str(2.0 * number) for number in range(100) if number != 40]


NODE = """
    import json, os, pathlib, sys, time
    import jitclient

    folder = pathlib.Path(sys.argv[1])

    def work(number):
        (folder / f"{number} of {os.environ.get('CUDA_VISIBLE_DEVICES')}").touch()
        while number < 2 and not (folder / "lost").exists():
            time.sleep(0.01)
        return number

    with jitclient.pool("ray", gpus=1, hosts=2) as pool:
        futures = [pool.submit(work, number) for number in range(20)]
        while len(list(folder.glob("[01] of *"))) < 2:
            time.sleep(0.01)
        print("ready", flush=True)
        sys.stdin.readline()
        (folder / "lost").touch()
        print(json.dumps([future.result() for future in futures]))
"""


def test_hosts_with_accelerators_move_to_a_new_node_when_theirs_is_lost(cluster: RayOfTwo, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(NODE))
    files = tmp_path / "files"
    files.mkdir()
    command = [sys.executable, str(tmp_path / "program.py"), str(files)]
    with subprocess.Popen(
        command, env=cluster.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "ready\n"
        assert {path.name.split(" of ")[1] for path in files.glob("[01] of *")} == {"0", "1"}
        cluster.order("kill")
        cluster.order("add")
        printed, said = driver.communicate("\n", timeout=200)
    assert driver.returncode == 0, said
    assert found_in(printed) == list(range(20))


ORPHANS = """
    import os, signal, sys, time
    import jitclient

    def work(path):
        with open(path + ".new", "w") as file:
            file.write(f"{os.getpid()}")
        os.rename(path + ".new", path)
        while True:
            pass

    pool = jitclient.pool("ray", hosts=1)
    future = pool.submit(work, sys.argv[1])
    while not os.path.exists(sys.argv[1]):
        assert not future.done()
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_driver_that_is_killed_leaves_no_worker(cluster: RayOfTwo, tmp_path: Path, until: Callable[..., Any]) -> None:
    path, pid = tmp_path / "program.py", tmp_path / "pid"
    path.write_text(textwrap.dedent(ORPHANS))
    done = subprocess.run([sys.executable, str(path), str(pid)], env=cluster.env, capture_output=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr
    until(lambda: not alive(int(pid.read_text())), "the worker to end")
