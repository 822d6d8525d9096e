"""Someone removes or replaces the files by which the daemon is found: it makes them again, or ends in order."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jitclient.wire.address import Address

pytestmark = pytest.mark.slow

CLIENT = """
    @jitclient.jit
    def double(x):
        return x * 2

    resident = double(np.float32(21))
    jitclient.block_until_ready(resident)
    print("ready")
    sys.stdin.readline()
    try:
        print(float(resident))
    except errors.ArrayLost:
        print("lost")
"""


def second_serve(address: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "jitserver", "serve", "--address", address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("removed", ["socket", "lock", "folder"])
def test_what_was_removed_is_made_again(
    serve: Any, start_client: Any, client_of: Any, works: Any, until: Any, removed: str
) -> None:
    with serve() as daemon:
        client = start_client(daemon, CLIENT)
        client.says("ready")
        path, lock = daemon.path, Address.parse(daemon.address).lock_path
        if removed == "folder":
            shutil.rmtree(path.parent)
        else:
            (path if removed == "socket" else lock).unlink()
        until(lambda: path.exists() and lock.exists(), "the files to be there again")
        assert path.parent.stat().st_mode & 0o077 == 0
        assert daemon.counts().pid == daemon.process.pid
        done = second_serve(daemon.address)
        assert done.returncode == 1
        assert "serves at" in done.stderr
        with client_of(daemon.address):
            works()
        client.goes_on()
        client.says("42.0")
        client.ends()
        assert int(lock.read_text()) == daemon.process.pid
    assert not path.exists()


def test_a_daemon_whose_lock_another_has_ends_and_leaves_it_alone(serve: Any, start_client: Any) -> None:
    with serve() as daemon:
        client = start_client(daemon, CLIENT)
        client.says("ready")
        lock = Address.parse(daemon.address).lock_path
        other = lock.with_suffix(".other")
        with open(other, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            other.rename(lock)
            assert daemon.process.wait(60) == 1
        assert lock.read_text() == ""
        assert not list(Path(os.environ["JITSERVER_CACHE_DIR"]).glob("*/checkpoint/*/manifests/*"))


def test_a_daemon_whose_socket_was_replaced_hands_over_in_order(serve: Any, start_client: Any, new_daemon: Any) -> None:
    cache = os.environ["JITSERVER_CACHE_DIR"]
    with serve(JITSERVER_CACHE_DIR=cache) as daemon:
        client = start_client(daemon, CLIENT)
        client.says("ready")
        other = Address(daemon.path.with_suffix(".other"))
        with other.listen():
            other.path.rename(daemon.path)
            assert daemon.process.wait(60) == 0
            assert daemon.path.exists(), "it is not its own"
        with new_daemon(daemon.address, env={"JITSERVER_CACHE_DIR": cache}):
            client.goes_on()
            client.says("42.0")
            client.ends()
