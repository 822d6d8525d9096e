"""Pools on a Ray cluster of two nodes on this machine, and `jitserver cluster`. Skipped where Ray is not installed."""

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

    def __init__(self, folder: str) -> None:
        self.env = {
            **os.environ,
            "RAY_USAGE_STATS_ENABLED": "0",
            "JITSERVER_AUTOSTART": "1",
            "JITSERVER_CACHE_DIR": f"{folder}/cache",
        }
        self.env.pop("JITSERVER_ADDRESS")
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

    def command(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "jitserver", "cluster", *words, "--json"],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode in (0, 3), done.stderr + done.stdout
        return json.loads(done.stdout)

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
def cluster() -> Iterator[RayOfTwo]:
    with tempfile.TemporaryDirectory(prefix="js-") as folder:
        made = RayOfTwo(folder)
        try:
            yield made
            made.command("down", "ray")
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
        import os
        return os.environ["JITSERVER_ADDRESS"], float(step(data, np.float32(rate)))

    with jitclient.pool("ray") as pool:
        data = pool.keep("data", load, deps=[])
        found = list(pool.map(work, range(20), [data] * 20, chunksize=1))
    daemons, values = zip(*found)
    print(json.dumps([len(set(daemons)), values]))
"""


def made(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(row["traces"], row["compiles"], row["names"]) for row in rows]


def test_the_next_program_finds_the_daemons_with_their_programs_and_data(cluster: RayOfTwo, tmp_path: Path) -> None:
    daemons, values = cluster.run(SWEEP, tmp_path)
    assert daemons == 2
    assert values == [6.0 * rate for rate in range(20)]
    first = cluster.command("status", "ray")
    assert made(first) == [(1, 1, 1)] * 2
    assert cluster.run(SWEEP, tmp_path) == [daemons, values]
    again = cluster.command("status", "ray")
    assert made(again) == made(first)
    assert [row["pid"] for row in again] == [row["pid"] for row in first]


FAULTS = """
    import json, os, pathlib, signal, sys
    import numpy as np
    import jitclient

    folder = sys.argv[1]

    @jitclient.jit
    def double(x):
        return 2 * x

    def parent(pid):
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    def work(number):
        address = pathlib.Path(os.environ["JITSERVER_ADDRESS"].removeprefix("unix:"))
        daemon = int(address.with_suffix(".lock").read_text())
        victims = {
            20: ("worker", lambda: os.getpid()),
            40: ("worker's actor", lambda: parent(os.getppid())),
            60: ("daemon's actor", lambda: parent(daemon)),
            80: ("daemon", lambda: daemon),
        }
        name, victim = victims.get(number, ("", None))
        marker = pathlib.Path(folder) / name
        if name and not marker.exists():
            marker.touch()
            os.kill(victim(), signal.SIGKILL)
        return float(double(np.float32(number)))

    with jitclient.pool("ray") as pool:
        values = list(pool.map(work, range(100), chunksize=1))
    print(json.dumps(values))
"""


def test_a_map_of_100_survives_the_death_of_each_of_its_processes(cluster: RayOfTwo, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    assert cluster.run(FAULTS, tmp_path, str(killed)) == [2.0 * number for number in range(100)]
    assert {path.name for path in killed.iterdir()} == {"worker", "worker's actor", "daemon's actor", "daemon"}


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
    import os, signal, subprocess, sys, time
    import jitclient

    def work(path):
        child = subprocess.Popen(["sleep", "1000"])
        with open(path + ".new", "w") as file:
            file.write(f"{os.getpid()} {os.getppid()} {child.pid}")
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


def test_a_driver_that_is_killed_leaves_the_daemons_and_nothing_else(
    cluster: RayOfTwo, tmp_path: Path, until: Callable[..., Any]
) -> None:
    path, pids = tmp_path / "program.py", tmp_path / "pids"
    path.write_text(textwrap.dedent(ORPHANS))
    done = subprocess.run([sys.executable, str(path), str(pids)], env=cluster.env, capture_output=True, timeout=200)
    assert done.returncode == -signal.SIGKILL, done.stderr
    processes = [int(word) for word in pids.read_text().split()]
    until(lambda: not any(map(alive, processes)), "the worker, its shell and its child to end")
    assert any(row["running"] for row in cluster.command("status", "ray"))


def test_down_ends_the_daemons(cluster: RayOfTwo, until: Callable[..., Any]) -> None:
    cluster.command("down", "ray")
    up = cluster.command("up", "ray", "--gpus", "2")
    assert [row["running"] for row in up if "gpus=2" in row["host"]] == [True]
    pids = [row["pid"] for row in up if row["running"]]
    assert all(map(alive, pids))
    down = cluster.command("down", "ray")
    assert len(down) == len(up)
    until(lambda: not any(map(alive, pids)), "the daemons to end")
    assert cluster.command("status", "ray") == []
