"""A pool of two other machines, each with a daemon of its own; one of them goes away and comes back."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jitclient
from jitclient.errors import HostUnreachable

from .conftest import Host, NewHost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(170)]

PROGRAM = """
    import collections, json, os, pathlib, sys
    import numpy as np
    import jitclient
    import model_of_it

    def load():
        path = pathlib.Path(os.environ["HOME"]) / "loads"
        with open(path, "a") as file:
            file.write(".")
        return np.arange(4, dtype=np.float32)

    def work(number, data):
        return os.environ["HOME"], number, float(model_of_it.total(data)), type(data).__name__

    with jitclient.pool(json.loads(sys.argv[1]), workers=2) as pool:
        data = pool.keep("data", load, deps=[])
        found = list(pool.map(work, range(40), [data] * 40, chunksize=1))
    homes, numbers, totals, kinds = zip(*found)
    print(json.dumps([sorted(set(homes)), list(numbers), sorted(set(totals)), sorted(set(kinds))]))
"""


@pytest.fixture(scope="module")
def machines(new_host: NewHost, new_daemon: Callable[..., Any]) -> Iterator[tuple[Host, Host]]:
    with new_host() as one, new_host() as other, new_daemon(one.socket), new_daemon(other.socket):
        # An ssh that knows both: the configuration of one names the key and the known hosts of the other, too.
        both = "".join((host.folder / "known_hosts").read_text() for host in (one, other))
        for host in (one, other):
            (host.folder / "known_hosts").write_text(both)
            (host.folder / "authorized_keys").write_text((one.folder / "user.pub").read_text())
        yield one, other


@pytest.fixture
def two_hosts(machines: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> tuple[Host, Host]:
    monkeypatch.setenv("PATH", machines[0].env["PATH"])
    return machines


def test_a_program_runs_on_two_hosts_and_loads_its_data_once_on_each(
    two_hosts: tuple[Host, Host], tmp_path: Path, counts: Callable[..., dict[str, Any]]
) -> None:
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    (tmp_path / "model_of_it.py").write_text(
        "import jitclient\n\n@jitclient.jit\ndef total(data):\n    return data.sum() * 2\n"
    )
    command = [sys.executable, str(tmp_path / "program.py"), json.dumps([host.address for host in two_hosts])]
    compilations = []
    for _ in range(2):
        done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, done.stderr
        homes, numbers, totals, kinds = json.loads(done.stdout)
        assert homes == sorted(str(host.folder) for host in two_hosts)
        assert (numbers, totals, kinds) == (list(range(40)), [12.0], ["Array"])
        compilations.append([counts(host.socket)["compiles"] for host in two_hosts])
    assert [(host.folder / "loads").read_text() for host in two_hosts] == [".", "."]
    # The second run found the program on each host.
    assert compilations[0] == compilations[1]


def test_the_tasks_of_a_host_that_goes_away_run_on_the_other(
    two_hosts: tuple[Host, Host], capfd: pytest.CaptureFixture[str], until: Callable[..., Any]
) -> None:
    one, other = two_hosts
    at, taken = str(one.folder), str(one.folder / "taken")

    def work(number: int) -> tuple[int, str]:
        import os
        import time

        if os.environ["HOME"] == at:
            open(taken, "w").close()
            time.sleep(1000)
        while not os.path.exists(taken):  # else the other host could run all before this one has started
            time.sleep(0.01)
        return number, os.environ["HOME"]

    with jitclient.pool([one.address, other.address]) as pool:
        futures = [pool.submit(work, number) for number in range(6)]
        # The other host runs all but the one that waits.
        until(lambda: sum(future.done() for future in futures) == 5, "the other host's tasks")
        one.stop_listening()
        one.cut()
        assert [future.result() for future in futures] == [(number, str(other.folder)) for number in range(6)]
    # A pool begins without it, unless there is no other.
    with jitclient.pool([one.address, other.address]) as pool:
        assert pool.submit(lambda: os.environ["HOME"]).result() == str(other.folder)
    assert "a worker cannot be started (ssh does not reach" in capfd.readouterr().err
    with pytest.raises(HostUnreachable, match="Connection refused"):
        jitclient.pool(one.address)
