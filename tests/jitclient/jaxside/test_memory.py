"""Whose memory an array is in: no array that shares another's memory may be taken for one of XLA's own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.jaxside import memory
from jitclient.wire.array_transport import allocate

SIZE = 4096

WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "device_put": lambda source, put: put,
    "device_put twice": lambda source, put: jax.device_put(put),
    "device_put to a device": lambda source, put: jax.device_put(put, jax.devices()[0]),
    "jax.dlpack": lambda source, put: jax.dlpack.from_dlpack(source),
    "jnp.from_dlpack": lambda source, put: jnp.from_dlpack(source),
    "from a callback": lambda source, put: jax.make_array_from_callback((SIZE,), put.sharding, lambda index: source),
    "from arrays": lambda source, put: jax.make_array_from_single_device_arrays((SIZE,), put.sharding, [put]),
    "a shard": lambda source, put: put.addressable_shards[0].data,
    "its data": lambda source, put: put.addressable_data(0),
    "jnp.asarray": lambda source, put: jnp.asarray(source),
    "jnp.asarray of an array": lambda source, put: jnp.asarray(put),
    "jnp.array": lambda source, put: jnp.array(source),
    "jnp.array without a copy": lambda source, put: jnp.array(put, copy=False),
    "as it is": lambda source, put: put.reshape(SIZE),
    "all of it": lambda source, put: put[...],
    "the same type": lambda source, put: put.astype(put.dtype),
    "a view": lambda source, put: put.view(jnp.int32),
    "reshape": lambda source, put: put.reshape(2, -1),
    "a sum": lambda source, put: put + 1,
    "jit": lambda source, put: jax.jit(lambda x: x)(put),
    "jit with more": lambda source, put: jax.jit(lambda x: (x, x + 1))(put)[0],
    "jit with a donation": lambda source, put: jax.jit(lambda x: x + 1, donate_argnums=0)(jax.device_put(source)),
    "jit to a place": lambda source, put: jax.jit(lambda x: x, out_shardings=put.sharding)(put),
    "compiled": lambda source, put: jax.jit(lambda x: x).lower(put).compile()(put),
    "vmap": lambda source, put: jax.vmap(lambda x: x)(put),
    "cond": lambda source, put: jax.lax.cond(True, lambda x: x, lambda x: x, put),
    "barrier": lambda source, put: jax.lax.optimization_barrier(put),
    "copy": lambda source, put: jnp.copy(put),
    "zeros": lambda source, put: jnp.zeros(SIZE),
    "random": lambda source, put: jax.random.normal(jax.random.key(0), SIZE),
    "a product": lambda source, put: put.reshape(64, 64) @ put.reshape(64, 64),
    "softmax": lambda source, put: jax.nn.softmax(put),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_may_be_written_by_others_is_not_of_xla(way: str) -> None:
    source = allocate(SIZE * 4).view(np.float32)
    source[:] = 1
    put = jax.device_put(source)
    assert put.unsafe_buffer_pointer() == source.ctypes.data  # or this tests nothing
    for _ in range(3):  # what is called again goes another way in jax
        made = WAYS[way](source, put)
        assert not (memory.owns_xla_memory(made) and made.unsafe_buffer_pointer() == source.ctypes.data)


@pytest.mark.parametrize(
    "way", ["a sum", "jit", "compiled", "zeros", "random", "copy", "reshape", "a product", "softmax"]
)
def test_what_was_computed_is_of_xla(way: str) -> None:
    source = allocate(SIZE * 4).view(np.float32)
    put = jax.device_put(source)
    for _ in range(3):
        assert memory.owns_xla_memory(WAYS[way](source, put))


def test_where_jax_does_not_say_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        traceback = None

    assert not memory.owns_xla_memory(Silent())
    assert not memory.owns_xla_memory(object())
    monkeypatch.setattr(memory, "_results_are_new", lambda: False)
    assert not memory.owns_xla_memory(jnp.zeros(3) + 1)


SETTINGS: dict[str, Callable[[], Any]] = {
    "disable_jit": jax.disable_jit,
    "transfer_guard": lambda: jax.transfer_guard("disallow_explicit"),
    "no_tracing": jax.no_tracing,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_settings_of_the_program_do_not_decide(setting: str) -> None:
    made = jnp.zeros(3) + 1
    memory._results_are_new.cache_clear()
    with SETTINGS[setting]():
        assert memory.owns_xla_memory(made)


@pytest.mark.parametrize("name", ["", "relative.py"])
def test_code_may_come_from_anywhere(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {"add": jax.jit(lambda x: x + 1), "x": jnp.zeros(3)}
    for _ in range(2):
        exec(compile("made = add(x)", name, "exec"), namespace)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert memory.owns_xla_memory(namespace["made"])


def test_a_mesh_of_several_devices_is_not_in_the_way(run_script: Callable[..., Any]) -> None:
    told = run_script(
        """
        import json
        import jax, jax.numpy as jnp, numpy as np
        from jitclient.jaxside import memory
        made = jnp.zeros(3) + 1
        with jax.set_mesh(jax.make_mesh((2,), ("a",))):
            print(json.dumps(memory.owns_xla_memory(made)))
        """,
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    )
    assert told is True
