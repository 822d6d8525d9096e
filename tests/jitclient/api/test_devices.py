"""The daemon's devices: which there are, and what becomes of programs and arrays on several of them."""

import dataclasses
import os
import re
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jitclient

from ...running_daemon import run_daemon

EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}

MESH = """
import json, sys, warnings
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
import jitclient

mesh = jax.make_mesh((8,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())
X = np.arange(32, dtype=np.float32).reshape(8, 4)
"""


@pytest.fixture(scope="module")
def eight(new_daemon: Any) -> Iterator[dict[str, str]]:
    """The environment of clients of a daemon with eight devices."""
    with tempfile.TemporaryDirectory(prefix="js-") as folder:
        env = {**EIGHT, "JITSERVER_ADDRESS": f"unix:{folder}/d.sock"}
        with new_daemon(env["JITSERVER_ADDRESS"], env=EIGHT):
            yield env


@pytest.mark.usefixtures("daemon")
def test_devices_are_told_without_jax(run_script: Callable[..., Any]) -> None:
    found = run_script(
        """
        import dataclasses, json, sys, jitclient
        found = [dataclasses.asdict(device) for device in jitclient.devices()]
        assert "jax" not in sys.modules
        print(json.dumps(found))
        """
    )
    [device] = jax.devices()
    assert found == [{"id": 0, "kind": device.device_kind, "platform": "cpu", "memory_bytes": None}]


def test_they_are_the_daemons_own(own: Any) -> None:
    with own.serving(XLA_FLAGS="--xla_force_host_platform_device_count=3"):
        found = own.run(
            "import json, jax, jitclient; print(json.dumps([len(jax.devices()), [d.id for d in jitclient.devices()]]))"
        )
    assert found == [1, [0, 1, 2]]


@pytest.mark.usefixtures("daemon")
def test_a_device_cannot_be_changed() -> None:
    [device] = jitclient.devices()
    with pytest.raises(dataclasses.FrozenInstanceError):
        device.id = 1  # type: ignore[misc]


# ---- several devices


TRAINING = """
from jitclient.calls import arguments

sent, pack = [], arguments.pack
def counting(value, *rest):
    sent.append(value.nbytes)
    return pack(value, *rest)
arguments.pack = counting

@jitclient.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

w, x = jitclient.device_put((X[0], X), (whole, rows))
put = len(sent)
for _ in range(5):
    w = step(w, x)
moved = jitclient.device_put(w, NamedSharding(mesh, P()))
spread = jitclient.device_put(x, NamedSharding(mesh, P(None)))
print(json.dumps([put, len(sent) - put, len(w.devices()), moved is w, float(np.asarray(w).sum())]))
"""


def test_arrays_stay_on_their_devices(eight: dict[str, str], run_script: Callable[..., Any]) -> None:
    put, sent, devices, is_same, total = run_script(MESH + TRAINING, env=eight)
    assert (put, sent, devices, is_same) == (2, 0, 8, True)
    assert np.isfinite(total)


MOVED = """
x = jitclient.jit(lambda x: x + 1, out_shardings=jax.sharding.SingleDeviceSharding(jax.devices()[0]))(X)
y = jitclient.device_put(x, whole)
z = jitclient.jit(lambda y: y * 2, donate_argnums=0)(y)
print(json.dumps([float(z.sum()), float(jitclient.jit(jnp.sum)(x))]))
"""


def test_donating_a_moved_array_leaves_its_source(eight: dict[str, str], run_script: Callable[..., Any]) -> None:
    assert run_script(MESH + MOVED, env=eight) == [1056.0, 528.0]


FAILED = """
import os
bad = jitclient.jit(lambda x: jax.pure_callback(lambda x: 1 / 0, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
try:
    jitclient.device_put(bad(jitclient.device_put(X)), rows)
except Exception as error:
    print(json.dumps(str(error)))
"""


def test_what_failed_cannot_be_moved(eight: dict[str, str], run_script: Callable[..., Any]) -> None:
    assert "division by zero" in run_script(MESH + FAILED, env=eight)


IN_A_CALLBACK = """
inner = jitclient.jit(lambda x: x * 2)

def outer(fails):
    @jitclient.jit
    def outer(x):
        return jax.pure_callback(fails, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + x.sum()
    try:
        return np.asarray(outer(jitclient.device_put(X, rows))).sum().item()
    except Exception as error:
        return str(error)

told = [
    outer(lambda value: np.asarray(inner(jitclient.device_put(value)))),
    outer(lambda value: np.asarray(inner(jitclient.device_put(value, rows)))),
    outer(lambda value: 1 / 0),
]
print(json.dumps([*told, np.asarray(inner(jitclient.device_put(X, rows))).sum().item()]))
"""


def test_a_callback_of_a_program_over_several_devices(eight: dict[str, str], run_script: Callable[..., Any]) -> None:
    right, nested, failed, after = run_script(MESH + IN_A_CALLBACK, env=eight)
    assert (right, after) == (2 * 496 + 32 * 496, 992)
    assert "SessionBusy: a program over several devices was called while another" in nested
    assert "division by zero" in failed


KILLED = """
import os, signal, subprocess

@jitclient.jit
def outer(x):
    end = lambda value: os.kill(os.getpid(), signal.SIGKILL)
    return jax.pure_callback(end, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + x.sum()

x = jitclient.device_put(X, rows)
if sys.argv[1:]:
    outer(x)
done = subprocess.run([sys.executable, __file__, "and end"])
print(json.dumps([done.returncode, float(jitclient.jit(jnp.sum)(x))]))
"""


def test_a_client_that_dies_in_a_callback_leaves_the_daemon_to_others(
    eight: dict[str, str], run_script: Callable[..., Any]
) -> None:
    assert run_script(MESH + KILLED, env=eight) == [-signal.SIGKILL, 496.0]


TRIES = """
import collections

def kept(x):
    return jax.lax.with_sharding_constraint(x * 2, rows)

def summed(x):
    return jax.shard_map(lambda x: jax.lax.psum(x, "batch"), mesh=mesh, in_specs=P("batch"), out_specs=P())(x)

def under_the_mesh():
    with jax.set_mesh(mesh):
        return jitclient.jit(lambda x: x + 1)(X)

tries = {
    "a captured mesh": lambda: jitclient.jit(kept)(X),
    "shard_map": lambda: jitclient.jit(summed)(X),
    "a mesh in force": under_the_mesh,
    "put": lambda: jitclient.device_put(X, rows),
    "put on a device": lambda: jitclient.device_put(X, jax.devices()[3]),
    "pmap": lambda: jitclient.jit(jax.pmap(lambda x: x + 1))(X),
}
found = collections.defaultdict(list)
for _ in range(2):
    for name, call in tries.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = call()
                said = [str(warning.message) for warning in caught]
                found[name].append([float(np.sum(np.asarray(result))), len(result.devices()), *said])
            except jitclient.JitserverError as error:
                found[name].append(str(error))
print(json.dumps(found))
"""

TOTALS = {
    "a captured mesh": 992,
    "shard_map": 496,
    "a mesh in force": 528,
    "put": 496,
    "put on a device": 496,
    "pmap": 528,
}


def test_programs_for_more_devices_than_the_daemon_has_run_locally(own: Any) -> None:
    with own.serving():
        for fallback in ("local", "error"):
            found = own.run(MESH + TRIES, **EIGHT, JITSERVER_FALLBACK=fallback)
            assert found.keys() == TOTALS.keys()
            for name, (first, second) in found.items():
                if fallback == "error":
                    for said in (first, second):
                        assert re.search(
                            "devices are needed, and the daemon has 1|uses 8 devices of this process", said
                        ), name
                else:
                    total, devices, *warned = first
                    assert total == TOTALS[name]
                    assert devices == (1 if name == "put on a device" else 8), name
                    assert "the daemon has 1" in warned[0] or "uses 8 devices of this process" in warned[0], name
                    assert second[:2] == first[:2], name


REFUSED = """
from jitclient.calls import general_path

now = [0.0]

def misses():
    status = json.loads(subprocess.run(
        [sys.executable, "-m", "jitserver", "status", "--json"], capture_output=True, check=True).stdout)
    return status["misses"]

general_path.monotonic = lambda: now[0]
step = jitclient.jit(lambda x: x * 2)
x, found = jax.device_put(np.arange(8.0), NamedSharding(jax.make_mesh((8,), ("d",)), P("d"))), []
for now[0] in (0.0, 1.0, 9.0, 11.0, 12.0):
    found.append([float(step(x).sum()), misses()])
print(json.dumps(found))
"""


def test_a_daemon_with_too_few_devices_is_asked_again_only_after_a_while(own: Any) -> None:
    with own.serving():
        imports = "import json, subprocess, sys, warnings, jax, numpy as np, jitclient\n"
        imports += "from jax.sharding import NamedSharding, PartitionSpec as P\nwarnings.simplefilter('ignore')\n"
        found = own.run(imports + REFUSED, **EIGHT, JITSERVER_FALLBACK="local")
    assert found == [[56.0, misses] for misses in (1, 1, 1, 2, 2)]


SEEN = """
x = jitclient.kept("spread")
try:
    x.sharding
except AttributeError as error:
    print(json.dumps([float(np.asarray(x).sum()), float(jnp.sum(x)), float(jitclient.jit(jnp.sum)(x)), str(error)]))
"""


def test_a_client_with_fewer_devices_has_the_values(eight: dict[str, str], run_script: Callable[..., Any]) -> None:
    run_script(MESH + 'jitclient.keep("spread", jitclient.device_put(X, rows)); print(0)', env=eight)
    alone = {"JITSERVER_ADDRESS": eight["JITSERVER_ADDRESS"]}
    *totals, error = run_script("import json, jax, jax.numpy as jnp, numpy as np, jitclient" + SEEN, env=alone)
    assert totals == [496.0] * 3
    assert "which has 1) lacks. Start the program with XLA_FLAGS" in error


def test_a_program_is_not_served_to_a_daemon_with_other_devices(
    short_path: Any, run_script: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    address = f"unix:{short_path}/d.sock"
    four = MESH.replace("make_mesh((8,)", "make_mesh((4,)").replace(
        "axis_types", "devices=jax.devices()[:4], axis_types"
    )
    program = four + "print(float(jitclient.jit(lambda x: x.sum(), in_shardings=rows)(X)))"
    for count, compiles in ((8, 1), (4, 1), (8, 0)):
        sources = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}  # where they are not installed
        env = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}", **sources}
        with run_daemon(address, short_path / "cache", env=env):
            assert run_script(program, env={**EIGHT, "JITSERVER_ADDRESS": address}) == 496.0
            assert counts(address)["compiles"] == compiles, count


def test_a_daemon_starts_with_the_devices_that_the_program_asks_jax_for(run_script: Callable[..., Any]) -> None:
    found = run_script(
        """
        import json, jax
        from jitclient.session.launch import daemon_environment

        before = daemon_environment().get("JAX_NUM_CPU_DEVICES")
        jax.config.update("jax_num_cpu_devices", 8)
        print(json.dumps([before, daemon_environment()["JAX_NUM_CPU_DEVICES"]]))
        """
    )
    assert found == [None, "8"]


DISTRIBUTED = """
import json, os, subprocess, sys, warnings
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
import jitclient

port, here = sys.argv[1:]
if here == "0":
    other = subprocess.Popen([sys.executable, __file__, port, "1"], stdout=subprocess.DEVNULL)
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=int(here))
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
halves = NamedSharding(mesh, P("x"))
x = jax.make_array_from_process_local_data(halves, np.full(2, 1 + int(here), np.float32))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    summed = jitclient.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))(x)
    index = jitclient.jit(lambda x: x + jax.process_index())(np.float32(0))
    put = jitclient.device_put(np.ones(2, np.float32), halves)
print(json.dumps([float(summed), float(index), len(put.sharding.device_set), [str(one.message) for one in caught]]))
jax.distributed.shutdown()
if here == "0":
    assert other.wait() == 0
"""


def test_a_program_of_several_processes_runs_locally(own: Any) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    with own.serving():
        total, index, devices, warned = own.run(DISTRIBUTED, port, "0", JITSERVER_FALLBACK="local")
        assert own.counts()["calls"] == 0
    assert (total, index, devices) == (6.0, 0.0, 2)
    assert all("(jax.distributed)" in text for text in warned)
    assert warned


ALONE = """
import json, sys
import jax, numpy as np
import jitclient

jax.distributed.initialize(f"localhost:{sys.argv[1]}", num_processes=1, process_id=0)
print(json.dumps(float(jitclient.jit(lambda x: x + jax.process_count())(np.float32(1)))))
jax.distributed.shutdown()
"""


@pytest.mark.usefixtures("daemon")  # nothing runs locally
def test_a_cluster_of_one_process_is_served(run_script: Callable[..., Any]) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    assert run_script(ALONE, port) == 2.0


@pytest.mark.slow
def test_a_daemon_without_its_platform_says_what_to_do_in_one_line(cli: Callable[..., Any], short_path: Any) -> None:
    env = {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock", "JAX_PLATFORMS": "cuda"}
    done = cli("serve", env=env)
    [line] = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("Error: JAX finds no device of JAX_PLATFORMS=cuda")
    assert "or unset JAX_PLATFORMS" in line
    done = cli("start", env=env)
    assert done.returncode == 1
    assert done.stderr == f"Error: the daemon exited during its start (status 1): {line.removeprefix('Error: ')}\n"
