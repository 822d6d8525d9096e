"""Arrays between host memory and devices: JAX releases what it has read, and keeps what it still needs."""

import gc
import weakref
from typing import Any

import jax
import numpy as np
import pytest

from jitclient.jaxside import shardings
from jitclient.wire.array_transport import allocate, dtype_named
from jitclient.wire.messages import Spec
from jitserver.programs.devices import device_arrays

SHAPE = (300, 400)


def argument(dtype: str) -> tuple[Any, "weakref.ref[Any]"]:
    raw = allocate(120_000 * dtype_named(dtype).itemsize)
    raw[:] = 0
    whole = np.frombuffer(memoryview(raw).toreadonly(), np.uint8)
    return device_arrays.decoder(Spec(SHAPE, dtype))(whole[:]), weakref.ref(whole)


@pytest.mark.parametrize("way", ["jaxlib's", "without it"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_after_a_call_jax_releases_its_arguments(
    way: str, dtype: str, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    if way == "without it":
        monkeypatch.setattr(device_arrays, "release_host_buffers", gc.collect)
    with jax.enable_x64(True):
        run = jax.jit(lambda x: (x + 1, x, x.T)).lower(jax.ShapeDtypeStruct(SHAPE, dtype_named(dtype))).compile()
    value, whole = argument(dtype)
    results = list(jax.block_until_ready(run(value)))
    del value

    def is_right() -> bool:  # only a result that shares the argument's memory keeps it
        device_arrays.release_host_buffers()
        base = whole()
        return (base is not None) == any(base is not None and _is_within(result, base) for result in results)

    until(is_right, "jax to let go")  # at once, unless another thread runs the program
    results.clear()
    device_arrays.release_host_buffers()
    assert whole() is None


def test_an_array_that_uses_host_memory_keeps_it() -> None:
    value, whole = argument("float32")
    array = device_arrays.put(np.asarray(value).view(np.uint8).reshape(-1), Spec(SHAPE, "float32"))
    del value
    device_arrays.release_host_buffers()
    base = whole()
    assert (base is not None) == (array.unsafe_buffer_pointer() == (base.ctypes.data if base is not None else None))
    del array, base
    device_arrays.release_host_buffers()
    assert whole() is None


def _is_within(array: Any, base: Any) -> bool:
    start = base.ctypes.data
    return bool(start <= array.unsafe_buffer_pointer() < start + base.nbytes)


def test_reading_an_array_leaves_no_copy_in_host_memory(run_script: Any) -> None:
    program = """
        import json
        import jax, numpy as np
        from jax.sharding import NamedSharding, PartitionSpec
        from jitserver.programs.devices import device_arrays

        def leaves_a_copy(read):
            array = jax.device_put(np.arange(8.0), NamedSharding(jax.make_mesh((2,), ("d",)), PartitionSpec("d")))
            values = [read(array) for _ in range(2)]
            assert [value.tolist() for value in values] == [[*range(8)]] * 2
            return values[0].ctypes.data == values[1].ctypes.data

        def read_bytes(array):
            return np.asarray(device_arrays.to_bytes(array, 1e9)).view("f4")

        reads = [np.asarray, device_arrays.to_host, read_bytes]
        print(json.dumps([leaves_a_copy(read) for read in reads]))
    """
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    assert run_script(program, env=two) == [True, False, False]


def test_an_argument_in_another_memory_is_made_there() -> None:
    device = jax.devices()[0]
    kinds = {memory.kind for memory in device.addressable_memories()} - {device.default_memory().kind}
    for kind in sorted(kinds):
        there = jax.sharding.SingleDeviceSharding(device, memory_kind=kind)
        spec = Spec((2,), "float32", sharding=shardings.of(there))
        made = device_arrays.decoder(spec)(np.ones(2, np.float32).tobytes())
        assert isinstance(made, jax.Array)
        assert made.sharding == there
    assert kinds
