"""Pools on machines as real as they can be here: a SLURM of two nodes, and hosts that can be cut off.

The commands that boot these and run another command inside are in JITSERVER_TEST_SLURM and JITSERVER_TEST_HOSTS.
Without them, these tests are skipped.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def inside(variable: str, program: str, folder: Path, seconds: float = 280, **env: str) -> Any:
    """Returns what the last line of a program says in JSON; the command in a variable boots what it runs on."""
    command = os.environ.get(variable)
    if not command:
        pytest.skip(f"NOT TESTED HERE: {variable} names no command that boots a cluster")
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    done = subprocess.run(
        [command, sys.executable, str(path)], env={**os.environ, **env}, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


UNDER_SLURM = """
    import json, os, pathlib, subprocess, time
    import jitclient

    marker = pathlib.Path(__file__).with_name("marker")

    def work(number):
        import os, time
        job = os.environ["SLURM_JOB_ID"]
        if number == 3 and not marker.exists():
            marker.with_name("new").write_text(job)
            marker.with_name("new").rename(marker)
            time.sleep(1000)
        return number, job

    with jitclient.pool("slurm", nodes=2, time=os.environ["LIMIT"]) as pool:
        futures = [pool.submit(work, number) for number in range(20)]
        while not marker.exists():
            time.sleep(0.01)
        if os.environ["END"] == "scancel":
            subprocess.run(["scancel", marker.read_text()], check=True)
        results = [future.result() for future in futures]
    numbers, jobs = zip(*results)
    print(json.dumps([numbers, marker.read_text(), sorted(set(jobs)), jobs[3]]))
"""


@pytest.mark.parametrize(("end", "limit"), [("scancel", "10:00"), ("its time limit", "1:00")])
def test_a_slurm_job_that_ends_loses_no_task(end: str, limit: str, tmp_path: Path) -> None:
    numbers, ended, jobs, again = inside("JITSERVER_TEST_SLURM", UNDER_SLURM, tmp_path, NODES="2", END=end, LIMIT=limit)
    assert numbers == list(range(20))
    assert ended != again
    assert again in jobs


ON_HOSTS = """
    import json, os, pathlib, subprocess, sys, time
    import jitclient

    marker = pathlib.Path(os.environ["SHARED"]) / "marker"

    def work(number):
        import os, socket, time
        if socket.gethostname() == "h1" and not marker.exists():
            marker.touch()
            time.sleep(1000)
        return number, socket.gethostname()

    def host(order):
        subprocess.run([f"{os.environ['HOST']}/{order}", "h1"], check=True)

    with jitclient.pool([f"ssh://h{number}{sys.prefix}" for number in (1, 2)], timeout=5) as pool:
        futures = [pool.submit(work, number) for number in range(20)]
        while not marker.exists():
            time.sleep(0.01)
        host("cut")
        cut_off = [future.result() for future in futures]
    host("mend")
    with jitclient.pool(f"ssh://h1{sys.prefix}") as pool:
        assert pool.submit(work, 0).result() == (0, "h1")
    print(json.dumps(cut_off))
"""


def test_a_host_that_is_cut_off_loses_no_task_and_serves_the_next_pool(tmp_path: Path) -> None:
    assert inside("JITSERVER_TEST_HOSTS", ON_HOSTS, tmp_path, HOSTS="2") == [[number, "h2"] for number in range(20)]


SWEEP_ON_HOSTS = """
    import json, os, subprocess, sys

    addresses = [f"ssh://h{number}{sys.prefix}" for number in (1, 2)]
    jitserver = [sys.executable, "-m", "jitserver"]

    def counted(address):
        said = subprocess.run([*jitserver, "status", "--json", "--address", address], capture_output=True, check=True)
        found = json.loads(said.stdout)
        return [found[name] for name in ("traces", "compiles", "client_traces", "local_runs", "calls")]

    outputs, counts = [], []
    for _ in range(2):
        command = [sys.executable, os.environ["EXAMPLE"], *addresses]
        outputs.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        counts.append([counted(address) for address in addresses])
    print(json.dumps([outputs, counts]))
"""


def test_the_second_run_of_a_sweep_compiles_nothing_on_any_host(tmp_path: Path) -> None:
    example = str(Path(__file__).parents[2] / "examples" / "sweep.py")
    (first, second), counts = inside("JITSERVER_TEST_HOSTS", SWEEP_ON_HOSTS, tmp_path, HOSTS="2", EXAMPLE=example)
    assert first == second
    for before, after in zip(*counts, strict=True):
        assert before[1] >= 1
        assert [new - old for old, new in zip(before, after, strict=True)][:4] == [0, 0, 0, 0]
    assert sum(after[4] - before[4] for before, after in zip(*counts, strict=True)) == 20
