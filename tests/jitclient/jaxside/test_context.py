"""Settings of JAX: those that travel, and those that keep a call in its process."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient.core.directories import environment_digest
from jitclient.jaxside import context, jax_settings
from jitserver.daemon.process_setup import prepare_process
from jitserver.programs.context import _ENTER

TABLES = (
    jax_settings.CARRIED,
    jax_settings.REFUSED,
    jax_settings.REFUSED_WHEN_COMPILING,
    jax_settings.CLIENT_ONLY,
    jax_settings.OF_DEVICES,
    jax_settings.IRRELEVANT,
)


def test_every_setting_of_jax_is_in_one_table() -> None:
    known = [name for table in TABLES for name in table]
    assert sorted(set(known)) == sorted(known)
    unknown = sorted(set(jax.config.values) - set(known))
    assert not unknown, (
        f"this jax has settings that jaxside/jax_settings.py does not know: {unknown}. Read what each "
        "does. One that changes a value, a type or an error goes to CARRIED if jax has a context manager for it, which "
        "jitserver/programs/context.py enters, else to REFUSED; one of backends to OF_DEVICES; all others to "
        "IRRELEVANT"
    )


@pytest.mark.parametrize("table", ["CARRIED", "REFUSED", "REFUSED_WHEN_COMPILING"])
def test_the_tables_have_the_defaults_of_jax(table: str) -> None:
    assert context._differing(getattr(jax_settings, table)) == ()
    assert context.current() == ()


def test_settings_that_each_call_reads_are_attributes() -> None:
    each_time = {*jax_settings.CARRIED, *jax_settings.REFUSED} & set(jax.config.values)
    assert [name for name in each_time if not hasattr(jax.config, name)] == []


def test_the_daemon_can_enter_what_travels() -> None:
    assert set(jax_settings.CARRIED) <= set(_ENTER)


def test_a_daemon_keeps_no_settings_of_who_started_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"JAX_DEBUG_NANS": "1", "JAX_RANDOM_SEED_OFFSET": "3", "JAX_PLATFORMS": "cpu", "HOME": "/"}
    prepare_process(environment)
    assert set(environment) == {"JAX_PLATFORMS", "HOME", "XLA_PYTHON_CLIENT_PREALLOCATE"}


def test_a_daemon_has_the_name_and_the_cache_of_who_started_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ({}, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "JAX_PLATFORMS": "cpu"}):
        environment = dict(given)
        prepare_process(environment)
        assert environment_digest(environment) == environment_digest(given)
    assert environment_digest({}) != environment_digest({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"})


def test_settings_are_read_from_the_environment_before_jax_is_there(run_script: Callable[..., Any]) -> None:
    program = """
        import json, sys
        from jitclient.jaxside import context

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


def test_until_then_the_environment_may_change(run_script: Callable[..., Any]) -> None:
    program = """
        import json, os
        from jitclient.jaxside import context

        found = [context.x64(context.current())]
        os.environ["JAX_ENABLE_X64"] = "1"
        found.append(context.x64(context.current()))
        os.environ["JAX_ENABLE_X64"] = "0"
        found.append(context.x64(context.current()))
        os.environ |= {"JAX_ENABLE_X64": "true", "OF_NO_INTEREST": "1"}
        found.append(context.x64(context.current()))
        del os.environ["JAX_ENABLE_X64"]
        found.append(context.x64(context.current()))
        os.environ = {"JAX_ENABLE_X64": "1"}
        found.append(context.x64(context.current()))
        print(json.dumps(found))
    """
    assert run_script(program) == [False, True, False, True, False, True]


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
def test_what_is_evaluated_while_it_is_traced_is_so_on_the_daemon() -> None:
    def above(x: Any) -> Any:
        return x if jnp.float32(3) > 2 else -x

    for jit in (jax.jit, jitclient.jit):
        with jax.ensure_compile_time_eval():
            assert float(jit(above)(np.float32(1))) == 1
        with pytest.raises(jax.errors.TracerBoolConversionError):
            jit(above)(np.float32(1))


@pytest.mark.usefixtures("daemon")
def test_operations_on_handles_need_no_process_of_their_own_there() -> None:
    handle = jitclient.device_put(np.arange(3.0, dtype=np.float32))
    with jax.ensure_compile_time_eval():  # as equinox's enumerations are compared, and diffrax's results
        assert np.asarray(handle == 1).tolist() == [False, True, False]


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


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_use_direct_linearize", False),
        ("jax_explicit_x64_dtypes", "error"),
        ("jax_disable_most_optimizations", True),
    ],
)
def test_a_program_is_not_made_under_a_setting_of_the_process(name: str, value: Any) -> None:
    before = jax.config.values[name]
    jax.config.update(name, value)
    try:
        with pytest.raises(jitclient.CaptureError, match=name):
            jitclient.jit(lambda x: x + len(name))(np.float32(1))
    finally:
        jax.config.update(name, before)


@pytest.mark.usefixtures("daemon")
def test_log_compiles_logs_what_is_made_and_only_that(caplog: pytest.LogCaptureFixture) -> None:
    step = jitclient.jit(lambda x: jnp.sin(x) * 1.625)
    with jax.log_compiles():
        for _ in range(2):
            step(np.ones(3, np.float32))
    said = [record.getMessage() for record in caplog.records if record.name == "jitclient"]
    assert len(said) == 1
    assert said[0].startswith("<lambda>(f32[3]) was made on the daemon: ")
    assert "compile" in said[0]
    step(np.ones(4, np.float32))
    assert len([record for record in caplog.records if record.name == "jitclient"]) == 1


VALUES = {
    "jax_default_matmul_precision": "float32",
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_default_prng_impl": "rbg",
    "jax_legacy_prng_key": "error",
    "jax_explicit_x64_dtypes": "error",
    "jax_default_device": "cpu",
    "jax_random_seed_offset": 3,
    "jax_embedded_constants_max_bytes": 1,
    "jax_xla_profile_version": 2,
}


@pytest.mark.parametrize(
    "name", [name for name in (*jax_settings.CARRIED, *jax_settings.REFUSED) if hasattr(jax.config, name)]
)
def test_a_change_of_any_setting_is_seen_by_the_next_call(name: str) -> None:
    before = getattr(jax.config, name)
    value = VALUES.get(name, "raise" if before == "ignore" else not before)
    assert context.current() == ()
    jax.config.update(name, value)
    try:
        assert [setting for setting, _ in context.current()] == [name]
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(context.current()))
        thread.start()
        thread.join()
        assert seen == [context.current()]
    finally:
        jax.config.update(name, before)
    assert context.current() == ()


def test_where_jax_does_not_tell_its_context_at_once_the_settings_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    context.internals.trace_context.cache_clear()
    monkeypatch.delattr("jax._src.config.trace_context")
    assert context.internals.trace_context()() is None
    with jax.enable_x64(True):
        assert context.current() == (("jax_enable_x64", True),)
    assert context.current() == ()
    context.internals.trace_context.cache_clear()


def test_settings_that_another_thread_changes_meanwhile_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    read, name = context._read, "jax_enable_x64"
    before = jax.config.jax_enable_x64
    monkeypatch.setattr(context, "_last", (None, ()))

    def changing(module: Any) -> Any:
        jax.config.update(name, not before)
        try:
            return read(module)
        finally:
            jax.config.update(name, before)

    expected = context.current()
    monkeypatch.setattr(context, "_last", (None, ()))
    reads = [changing, read]
    with monkeypatch.context() as patch:
        patch.setattr(context, "_read", lambda module: reads.pop(0)(module))
        assert context.current() != expected
    # The setting has its former value again, so what was read in between must not count for it.
    assert context.current() == expected
