"""Shardings: the same places as under jax.jit, on a daemon with eight devices and for a client with eight."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
WORKER = Path(__file__).with_name("placed_worker.py")
NAMES = [
    line.removeprefix("def ").partition("(")[0]
    for before, line in zip(WORKER.read_text().splitlines(), WORKER.read_text().splitlines()[1:], strict=False)
    if before == "@case"
]


@pytest.fixture(scope="module")
def eight(new_daemon: Any) -> Iterator[dict[str, str]]:
    """The environment of clients of a daemon with eight devices."""
    with tempfile.TemporaryDirectory(prefix="js-") as folder:
        env = {**EIGHT, "JITSERVER_ADDRESS": f"unix:{folder}/d.sock"}
        with new_daemon(env["JITSERVER_ADDRESS"], env=EIGHT):
            yield env


@pytest.fixture(scope="module")
def found(eight: dict[str, str]) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(WORKER)], env={**os.environ, **eight}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    differ: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return differ


MISTAKES = [
    "not divisible",
    "no prefix",
    "no prefix of results",
    "keywords",
    "no sharding",
    "rank",
    "no mesh any more",
    "device and sharding",
    "another sharding",
]


@pytest.mark.parametrize("name", [*NAMES, *MISTAKES])
def test_it_is_as_in_jax(found: dict[str, str], name: str) -> None:
    assert found[name] == ""


def test_every_case_is_named(found: dict[str, str]) -> None:
    assert set(found) == {*NAMES, *MISTAKES}


PROGRAM = """
    import json, sys, jax, numpy as np, jitclient
    from jax.sharding import NamedSharding, PartitionSpec as P

    whole = NamedSharding(jax.make_mesh((8,), ("x",)), P())
    x = np.ones(8, np.float32)
    tries = [
        lambda: jitclient.jit(lambda x: x, out_shardings=whole)(x),
        lambda: jitclient.jit(lambda x: x)(jax.device_put(x, whole)),
        lambda: jitclient.jit(lambda x: x, device=jax.devices()[3])(x),
        lambda: jitclient.jit(lambda x: x, backend="tpu")(x),
    ]
    found = []
    for one in tries:
        try:
            one()
        except (jitclient.Incompatible, RuntimeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    print(json.dumps(found))
"""


def test_more_devices_than_the_daemon_has_are_an_error_that_says_so(daemon: str, run_script: Any) -> None:
    found = run_script(PROGRAM, env=EIGHT)
    assert ["8 devices are needed, and the daemon has 1" in text for text in found] == [True, True, False, False]
    assert "4 devices are needed, and the daemon has 1" in found[2]
    assert found[3].startswith("RuntimeError: Unknown backend tpu")  # JAX's own error, where it computes on the CPU


def test_with_local_fallback_they_are_those_of_this_process(new_daemon: Any, short_path: Path, run_script: Any) -> None:
    address = f"unix:{short_path}/d.sock"
    with new_daemon(address):
        found = run_script(
            """
            import json, jax, numpy as np, jitclient, warnings
            from jax.sharding import NamedSharding, PartitionSpec as P

            whole = NamedSharding(jax.make_mesh((8,), ("x",)), P())
            with warnings.catch_warnings(record=True) as caught:
                result = jitclient.jit(lambda x: x + 1, out_shardings=whole)(np.ones(8, np.float32))
            print(json.dumps([result.tolist(), len(result.devices()), str(caught[0].message)]))
            """,
            env={**EIGHT, "JITSERVER_ADDRESS": address, "JITSERVER_FALLBACK": "local"},
        )
    assert found[:2] == [[2.0] * 8, 8]
    assert "the daemon has 1" in found[2]


def test_the_first_device_is_the_default_anyway(daemon: str, counts: Any) -> None:
    import jax
    import numpy as np

    import jitclient

    jitted = jitclient.jit(lambda x: x - 2)
    x = np.float32(1)
    assert float(jitted(x)) == -1
    before = counts()
    with jax.default_device(jax.devices()[0]):
        assert float(jitted(x)) == -1
    assert float(jitted(jax.device_put(x, jax.devices()[0]))) == -1
    assert counts()["compiles"] == before["compiles"]
