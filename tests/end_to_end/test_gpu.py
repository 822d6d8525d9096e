"""On a GPU. Skipped, and said so, where there is none."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="NOT TESTED HERE: this machine has no NVIDIA GPU"),
]


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
