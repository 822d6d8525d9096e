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
