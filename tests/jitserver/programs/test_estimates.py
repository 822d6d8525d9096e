"""Estimate of the memory of a program, compared with what its process grew by."""

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = """
    import ctypes, gc, json
    import jax, jax.numpy as jnp
    from jitserver.programs.program import _code_bytes

    def grown():
        jax.clear_caches()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/status") as status:
            return 1024 * int(status.read().partition("RssAnon:")[2].split()[0])

    def made(layers):
        def network(x):
            for layer in range(layers):
                x = jax.nn.gelu(x @ x + layer)
            return x.sum()

        lowered = jax.jit(jax.grad(network)).lower(jnp.ones((16, 16)))
        compiled = lowered.compile()
        return compiled, _code_bytes(compiled, lowered.as_text())

    made(2)  # so that what every program needs is there
    before = grown()
    compiled, estimate = made(40)
    print(json.dumps([grown() - before, estimate]))
"""


@pytest.mark.slow
@pytest.mark.cpu(reason="other platforms report what a program takes")
def test_a_large_program_counts_for_what_it_takes_within_a_factor_of_two(run_script: Callable[..., Any]) -> None:
    taken, estimate = run_script(PROGRAM, env={"XLA_FLAGS": ""})
    assert taken > 8 << 20
    assert taken / 2 < estimate < 2 * taken, (taken >> 10, estimate >> 10)
