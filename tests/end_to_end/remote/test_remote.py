"""A daemon on another host, as far as there is one: reached over TCP, on loopback and between two network namespaces.

There is no public way to it: daemon and client are handed their sockets.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

CLIENT = Path(__file__).with_name("client.py")
NETWORKS = ("loopback", "namespaces")
CASES = (
    "small_calls",
    "resident_arrays",
    "queued_large_arrays",
    "large_arrays",
    "many_arrays_at_once",
    "donation",
    "errors",
    "break_while_sending",
    "break_while_receiving",
    "small_buffers",
    "slow_link",
    "nothing_is_shared",
    "but_over_a_unix_socket",
)


def load_networks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("networks", CLIENT.with_name("networks.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def outcomes_over(network: str) -> dict[str, str]:
    """Case -> how it failed, in a client and a daemon with that network between them."""
    enters: tuple[str, ...] = ()
    if network == "namespaces":
        networks = load_networks()
        if why := networks.why_none():
            pytest.skip(why)
        enters = networks.OWN_NAMESPACE
    with tempfile.TemporaryDirectory(prefix="js-") as folder:
        done = subprocess.run(
            [*enters, sys.executable, str(CLIENT), network],
            env={**os.environ, "JITSERVER_ADDRESS": f"unix:{folder}/d.sock"},
            capture_output=True,
            text=True,
            timeout=170,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    outcomes: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "case"),
    [(network, case) for network in NETWORKS for case in CASES if (network, case) != ("loopback", "slow_link")],
)
def test_over_tcp(network: str, case: str) -> None:
    failure = outcomes_over(network)[case]
    if failure.startswith("skipped: "):
        pytest.skip(failure)
    assert not failure, failure
