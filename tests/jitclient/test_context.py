"""Settings of JAX: those that travel, and those that keep a call in its process."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient import context
from jitserver.process import prepare_process


def test_the_table_has_the_defaults_of_jax() -> None:
    assert {name: getattr(jax.config, name) for name in context._ALL} == context._ALL
    assert context.current() == ()


def test_a_daemon_keeps_no_settings_of_who_started_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"JAX_DEBUG_NANS": "1", "JAX_RANDOM_SEED_OFFSET": "3", "JAX_PLATFORMS": "cpu", "HOME": "/"}
    prepare_process(environment)
    assert set(environment) == {"JAX_PLATFORMS", "HOME", "XLA_PYTHON_CLIENT_PREALLOCATE"}


def test_settings_are_read_from_the_environment_before_jax_is_there(run_script: Callable[..., Any]) -> None:
    program = """
        import json, sys
        from jitclient import context

        found = [context.current(), context.jit_is_disabled()]
        assert "jax" not in sys.modules
        import jax

        print(json.dumps([found, [context.current(), context.jit_is_disabled()]]))
    """
    settings = {"JAX_DEBUG_NANS": "t", "JAX_RANDOM_SEED_OFFSET": "3", "JAX_LEGACY_PRNG_KEY": "error"}
    before, after = run_script(program, env={**settings, "JAX_DISABLE_JIT": "1"})
    assert before == after
    assert sorted(map(tuple, before[0])) == [
        ("jax_debug_nans", True),
        ("jax_legacy_prng_key", "error"),
        ("jax_random_seed_offset", 3),
    ]
    assert before[1] is True


@pytest.mark.usefixtures("daemon")
def test_settings_that_raise_travel() -> None:
    log = jitclient.jit(jnp.log)
    assert np.isnan(np.asarray(log(np.float32(-1))))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        np.asarray(log(np.float32(-1)))
    with jax.debug_infs(True), pytest.raises(FloatingPointError):
        np.asarray(log(np.float32(0)))
    with jax.legacy_prng_key("error"), pytest.raises(ValueError, match="Legacy"):
        jitclient.jit(lambda x: x + jax.random.uniform(jax.random.PRNGKey(0)))(np.float32(1))
    assert np.isnan(np.asarray(log(np.float32(-1))))


@pytest.mark.usefixtures("daemon")
def test_a_setting_that_cannot_travel_keeps_the_call_here() -> None:
    draw = jitclient.jit(lambda x: x + jax.random.uniform(jax.random.key(0)))
    plain = float(draw(np.float32(1)))
    jax.config.update("jax_random_seed_offset", 3)
    try:
        with pytest.raises(jitclient.CaptureError, match="jax_random_seed_offset"):
            draw(np.float32(1))
        assert float(jitclient.device_put(np.float32(1))) == 1
    finally:
        jax.config.update("jax_random_seed_offset", 0)
    assert float(draw(np.float32(1))) == plain
