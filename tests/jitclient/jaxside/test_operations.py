"""Operations are noted by one process and prepared by another; what cannot be is left to JAX."""

import json
from typing import Any

import pytest

from jitclient.jaxside import internals
from jitclient.jaxside.operations import preparation, reuse

NOTES = """
    import json
    import jax, jax.numpy as jnp, numpy as np
    from jitclient.jaxside.operations import reuse

    reuse.use()
    x = jnp.cos(np.ones((2, 3), np.float32))
    jax.random.normal(jax.random.key(0), (4,))
    jax.jit(lambda x: jnp.sin(x))(x)
    jnp.tan(jax.device_put(x, jax.devices()[0]))
    with jax.enable_x64(True):
        jnp.log(x)
    print(json.dumps([recipe.hex() for recipe in reuse.traced_recipes]))
"""

PREPARES = """
    import json, os, sys, warnings
    import jax, jax.numpy
    from jax._src import pjit, xla_bridge
    from jax._src.lax import special
    from jitclient.jaxside.operations import preparation

    {change}
    warnings.simplefilter("error")
    for recipe in json.loads(sys.argv[1]):
        preparation.prepare(bytes.fromhex(recipe))
    print(json.dumps([
        sorted(found.name for found in preparation.prepared.values() if found),
        xla_bridge.backends_are_initialized(),
        len(os.listdir("/proc/self/task")),
        pjit._infer_params_cached.cache_info().currsize,
    ]))
"""

OWN_THREADS = """
    import json, os
    import jax
    print(json.dumps(len(os.listdir("/proc/self/task"))))
"""


@pytest.fixture
def noted(run_script: Any) -> str:
    return json.dumps(run_script(NOTES))


def test_operations_are_prepared_without_a_backend_threads_or_a_trace_of_them(noted: str, run_script: Any) -> None:
    names, has_backend, threads, cached = run_script(PREPARES.format(change=""), noted)
    assert {"jit(cos)", "jit(_normal)", "jit(_threefry_seed)"} <= set(names)
    assert not {"jit(sin)", "jit(tan)", "jit(log)", "jit(<lambda>)"} & set(names)
    assert (has_backend, cached) == (False, 0)
    assert threads == run_script(OWN_THREADS)


@pytest.mark.parametrize(
    "change",
    [
        "special.erf_inv = lambda x: warnings.warn('each process is warned') or x",
        "special.erf_inv = lambda x: jax.devices() and x",
        "special.erf_inv = lambda x: jax.pure_callback(abs, x, x)",
    ],
    ids=["it warns", "it needs a backend", "it calls back"],
)
def test_some_cannot_be_prepared(change: str, noted: str, run_script: Any) -> None:
    names, has_backend, _, _ = run_script(PREPARES.format(change=change), noted)
    assert "jit(cos)" in names
    assert "jit(_normal)" not in names
    assert not has_backend


def test_another_version_of_jax_is_left_as_it_is(monkeypatch: Any) -> None:
    from jax._src import pjit
    from jax._src.interpreters import mlir

    monkeypatch.delattr("jax._src.interpreters.pxla._dce_jaxpr")
    internals.stages.cache_clear()
    own = pjit._infer_params, mlir.lower_jaxpr_to_module
    reuse.use()
    preparation.prepare(b"")
    assert (pjit._infer_params, mlir.lower_jaxpr_to_module) == own
    assert not any(preparation.prepared.values())
