"""The memories that arrays are in: the host's, and those of accelerators."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.jaxside import shardings
from jitclient.wire.messages import Spec
from jitserver.programs.devices import memories
from jitserver.programs.devices.backend import backend
from jitserver.programs.devices.memories import HOST, LEAST_BYTES, bytes_of, bytes_of_specs, data_bytes_of


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the memory of the default device one of its own."""
    monkeypatch.setattr(memories, "backend", lambda: dataclasses.replace(backend(), shares_host_memory=False))
    memories._places.cache_clear()
    yield
    memories._places.cache_clear()


@pytest.mark.cpu(reason="the CPU's arrays are in the host's memory")
def test_all_arrays_of_the_cpu_are_in_one_memory() -> None:
    assert [memory.number for memory in memories.of_process()] == [HOST] == [memories.default()]
    assert bytes_of(jnp.ones(4000)) == {HOST: 16000}
    assert bytes_of_specs([Spec((4000,), "float32"), Spec((5000,), "int8")]) == {HOST: 21000}


def test_a_small_array_counts_for_what_describes_it() -> None:
    here = memories.default()
    assert data_bytes_of(jnp.ones(4)) == {here: 16}
    assert bytes_of(jnp.ones(4)) == {here: LEAST_BYTES} == memories.bytes_at(16, (4,), None)
    assert bytes_of_specs([Spec((4,), "float32"), Spec((), "int8")]) == {here: 2 * LEAST_BYTES}


def test_each_accelerator_has_a_memory_and_so_has_the_host(accelerator: None) -> None:
    device = jax.devices()[0]
    [kind] = {each.kind for each in device.addressable_memories() if each.kind == "pinned_host"} or {"unpinned_host"}
    on_host = jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
    assert [memory.number for memory in memories.of_process()] == [*range(len(jax.devices())), HOST]
    assert memories.of_process()[0].where == f"on {device.platform}:{device.id}"
    assert bytes_of(jnp.ones(4000)) == {0: 16000}
    array = jax.device_put(np.ones(3000, np.float32), on_host)
    assert bytes_of(array) == {HOST: 12000}
    specs = [Spec((4000,), "float32"), Spec((2000,), "float32", sharding=shardings.of(on_host)), Spec((2,), "float0")]
    assert bytes_of_specs(specs) == {0: 16000, HOST: 8000}


def test_each_device_of_a_mesh_holds_its_part(run_script: Any) -> None:
    program = """
        import dataclasses, json, jax, numpy as np
        from jax.sharding import NamedSharding, PartitionSpec
        from jitclient.jaxside import shardings
        from jitclient.wire.messages import Spec
        from jitserver.programs.devices import memories

        host = dataclasses.replace(memories.backend(), shares_host_memory=False)
        memories.backend = lambda: host
        mesh = jax.make_mesh((2,), ("d",))
        found = []
        for spec in (PartitionSpec("d"), PartitionSpec()):
            sharding = NamedSharding(mesh, spec)
            array = jax.device_put(np.ones((4000, 2), np.float32), sharding)
            of_spec = memories.bytes_of_specs([Spec((4000, 2), "float32", sharding=shardings.of(sharding))])
            assert memories.bytes_of(array) == of_spec
            found.append(sorted(of_spec.items()))
        second = jax.device_put(np.ones(4000, np.float32), jax.devices()[1])
        print(json.dumps([*found, sorted(memories.bytes_of(second).items())]))
    """
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    assert run_script(program, env=two) == [[[0, 16000], [1, 16000]], [[0, 32000], [1, 32000]], [[1, 16000]]]
