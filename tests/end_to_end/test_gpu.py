"""On a GPU. Skipped, and said so, where there is none."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .accelerator_programs import FILLS, OVERWRITES, TRAINING, TWO_DEVICES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="NOT TESTED HERE: this machine has no NVIDIA GPU"),
]

CUDA = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def of_gpus(what: str) -> list[str]:
    """Return a property of each GPU of this machine."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def test_programs_run_on_the_gpu_and_the_client_takes_none_of_it(
    new_daemon: Callable[..., Any],
    short_path: Path,
    counts: Callable[..., dict[str, Any]],
    run_script: Callable[..., Any],
) -> None:
    address = f"unix:{short_path}/d.sock"
    with new_daemon(address, env={"JAX_PLATFORMS": "cuda"}):
        program = """
            import json, numpy as np, jitclient

            @jitclient.jit
            def step(w, x):
                return w - 0.1 * (x.T @ (x @ w))

            w, x = np.ones((64, 8), np.float32), np.ones((32, 64), np.float32) / 64
            for _ in range(5):
                w = step(w, x)
            print(json.dumps(float(np.asarray(w).sum())))
        """
        first = run_script(program, env={"JITSERVER_ADDRESS": address, "JAX_PLATFORMS": "cuda"})
        made = counts(address)
        assert made["devices"][0].startswith(("gpu", "cuda"))
        assert run_script(program, env={"JITSERVER_ADDRESS": address, "JAX_PLATFORMS": "cuda"}) == first
        assert counts(address)["compiles"] == made["compiles"] == 1


def test_callbacks_happen_in_the_client(
    new_daemon: Callable[..., Any],
    short_path: Path,
    counts: Callable[..., dict[str, Any]],
    run_script: Callable[..., Any],
) -> None:
    address = f"unix:{short_path}/d.sock"
    program = """
        import contextlib, io, json, jax, numpy as np, jitclient
        from jax.experimental import io_callback

        seen = []

        @jitclient.jit
        def step(x):
            def body(carry, n):
                jax.debug.print("step {}", n, ordered=True)
                jax.debug.callback(lambda v: seen.append(float(v)), carry.sum())
                return io_callback(lambda v: np.asarray(v) * 2, carry, carry), n

            return jax.lax.scan(body, x, jax.numpy.arange(3))[0]

        with contextlib.redirect_stdout(io.StringIO()) as text:
            value = np.asarray(step(step(np.ones(2, np.float32))))
        print(json.dumps([value.tolist(), sorted(seen), text.getvalue()]))
    """
    env = {"JITSERVER_ADDRESS": address, "JAX_PLATFORMS": "cuda,cpu"}
    expected = [[64.0, 64.0], [2.0, 4.0, 8.0, 16.0, 32.0, 64.0], "step 0\nstep 1\nstep 2\n" * 2]
    for _ in range(2):  # the second daemon has the executable from the disk
        with new_daemon(address, env={"JAX_PLATFORMS": "cuda,cpu"}):
            assert run_script(program, env=env) == expected
            assert counts(address)["local_runs"] == 0


def test_what_a_client_computes_itself_takes_no_memory_of_the_gpu(
    new_daemon: Callable[..., Any], short_path: Path, run_script: Callable[..., Any]
) -> None:
    address = f"unix:{short_path}/d.sock"
    program = """
        import json, os, subprocess
        import jitclient, jax

        key = jax.random.key(0)
        jitclient.jit(jax.random.normal)(key)
        holders = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True
        ).stdout.split()
        print(json.dumps([str(os.getpid()) in holders, jax.default_backend()]))
    """
    with new_daemon(address, env={"JAX_PLATFORMS": "cuda,cpu"}):
        env = {"JITSERVER_ADDRESS": address, "JAX_PLATFORMS": "", "JITSERVER_FALLBACK": "error"}
        assert run_script(program, env=env) == [False, "cpu"]


KERNEL = """
    import json
    import numpy as np
    import jitclient
    from jax.experimental import pallas

    def body(given, result):
        result[...] = given[...] * 2 + 1

    @jitclient.jit
    def doubled(x):
        return pallas.pallas_call(body, out_shape=x)(x)

    print(json.dumps(np.asarray(doubled(np.ones((16, 16), np.float32))).sum().item()))
"""
PINNED = """
    import json
    import jitclient, jax, numpy as np

    device = jax.devices()[0]
    there = jax.device_put(np.ones(8, np.float32), jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host"))
    moved = jitclient.jit(lambda x: jax.device_put(x, jax.sharding.SingleDeviceSharding(device)) + 1)
    print(json.dumps([np.asarray(moved(there)).sum().item() for _ in range(3)]))
"""


@pytest.mark.parametrize(("program", "expected"), [(KERNEL, 768.0), (PINNED, [16.0] * 3)], ids=["kernel", "pinned"])
def test_later_processes_find_the_program(
    new_daemon: Callable[..., Any],
    short_path: Path,
    counts: Callable[..., dict[str, Any]],
    run_script: Callable[..., Any],
    program: str,
    expected: Any,
) -> None:
    address = f"unix:{short_path}/d.sock"
    env = {"JITSERVER_ADDRESS": address, "JAX_PLATFORMS": "cuda,cpu"}
    with new_daemon(address, env={"JAX_PLATFORMS": "cuda,cpu"}):
        for _ in range(2):
            assert run_script(program, env=env) == expected
            assert counts(address)["local_runs"] == 0


def test_arguments_are_those_of_the_call_whatever_happens_to_their_memory(own: Any) -> None:
    with own.serving(**CUDA):
        assert own.run(OVERWRITES, **CUDA) == [[100_001.0 * n, 17.0 * n, n + 1, n, n] for n in range(5)]


HOLDER = """
import sys, jax, jax.numpy as jnp
held = jnp.zeros(int(sys.argv[1]) << 20, jnp.int8).block_until_ready()
print("holds", flush=True)
sys.stdin.read()
"""


def test_a_gpu_that_another_process_has_filled_raises_what_jax_raises(own: Any) -> None:
    total = int(of_gpus("memory.total")[0])  # in MiB
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(total // 2)],
        env={**os.environ, **CUDA},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        with own.serving(**CUDA):
            values, error, *more = own.run(FILLS, str(total // 16), **CUDA)
            assert (values, error) == (list(range(len(values))), "RESOURCE_EXHAUSTED")
            assert "The daemon holds" in more[-1]
            holder.communicate()  # it ends
            more_values, _, reason, *_ = own.run(FILLS, str(total // 16), **CUDA)
            assert more_values == list(range(len(more_values)))
            assert len(more_values) > len(values)
            assert "for arrays on" in reason
    finally:
        holder.kill()
        holder.communicate()


BREAKS = """
    import json, jax, numpy as np, jitclient
    from jax.experimental import pallas

    def body(at, given, result):
        result[...] = given[pallas.ds(at[0], 16)]

    @jitclient.jit
    def guilty(at, x):
        return pallas.pallas_call(body, out_shape=jax.ShapeDtypeStruct((16,), np.float32))(at, x)

    @jitclient.jit
    def innocent(x):
        return x * 2

    host, there = np.ones(16, np.float32), jitclient.device_put(np.ones(16, np.float32))
    start, outside = jitclient.device_put((np.zeros(1, np.int32), np.full(1, 2**31 - 64, np.int32)))
    np.asarray(guilty(start, there)), np.asarray(innocent(host))
    failed = guilty(outside, there)
    after, lost = np.asarray(innocent(host)).tolist(), ""
    try:
        np.asarray(failed)
    except jitclient.ArrayLost as error:
        lost = str(error)
    print(json.dumps([after, lost]))
"""


def test_an_illegal_access_costs_its_results_and_no_other_call(own: Any) -> None:
    with own.serving(**CUDA):
        after, lost = own.run(BREAKS, **CUDA)
        assert after == [2.0] * 16
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in lost
        assert "a device has failed for good" in own.counts()["restarted"]


def test_arrays_are_on_the_devices_that_the_client_names(own: Any) -> None:
    if len(of_gpus("name")) < 2:
        pytest.skip("NOT TESTED HERE: this machine has one GPU")
    with own.serving(**{**CUDA, "CUDA_VISIBLE_DEVICES": "1,0"}):
        env = {**CUDA, "CUDA_VISIBLE_DEVICES": "1,0", "JAX_NUM_CPU_DEVICES": "2"}
        assert own.run(TWO_DEVICES, **env) == [[[1], [0, 1], [1], [0, 1]], [[2.0 * n for n in range(8)]] * 4]


def test_a_profile_has_the_operations_of_plain_jax(own: Any) -> None:
    _, steps, plain = own.run(TRAINING, "plain", **CUDA)
    with own.serving(**CUDA):
        hosts, both, ours = own.run(TRAINING, "ours", **CUDA)
    assert (hosts, len(both)) == (2, 2 * len(steps))
    assert len(plain) > 5
    assert [name for _, name in ours] == [name for _, name in plain]


def test_what_xla_measures_is_kept_for_later_compilations(
    new_daemon: Callable[..., Any], short_path: Path, run_script: Callable[..., Any]
) -> None:
    address, cache = f"unix:{short_path}/d.sock", short_path / "cache"
    program = """
        import jax, jax.numpy as jnp, jitclient
        print(float(jitclient.jit(lambda x: jax.nn.softmax(x @ x.T).sum())(jnp.ones((512, 512), "bfloat16"))))
    """
    with new_daemon(address, env={"JAX_PLATFORMS": "cuda", "JITSERVER_CACHE_DIR": str(cache)}):
        run_script(program, env={"JITSERVER_ADDRESS": address, "JAX_PLATFORMS": "cuda"})
    assert any(cache.glob("*/tuning/*"))
