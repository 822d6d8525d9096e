"""Arrays that went to disk are the same when they come back, in every respect that a program can see."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jitclient.wire.arrays import dtype_named, raw_bytes
from jitserver.engine import arrays, spilling

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *(name for name in dir(ml_dtypes) if name.startswith(("float4", "float8", "int", "uint")) and hasattr(jnp, name)),
]  # an array of float6 cannot be made


def again(array: jax.Array) -> jax.Array:
    """The array after a stay on disk, behind another one."""
    file = io.BytesIO()
    spilling.write(file, jnp.zeros(3, "int8"))
    return spilling.read(file, spilling.write(file, array))


def same(one: jax.Array, other: jax.Array) -> None:
    assert other.aval == one.aval  # shape, dtype, weak type
    assert other.sharding == one.sharding
    assert other.committed == one.committed
    assert bytes(raw_bytes(arrays.to_host(other))) == bytes(raw_bytes(arrays.to_host(one)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_every_dtype_comes_back(dtype: str, shape: tuple[int, ...]) -> None:
    made = np.random.default_rng(1).integers(0, 2, shape).astype(dtype_named(dtype))
    with jax.enable_x64(True):
        array = jax.device_put(made)  # XLA ends the process rather than convert to some of them
    assert str(array.dtype) == dtype
    same(array, again(array))


@pytest.mark.parametrize("name", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (4,)])
def test_keys_come_back(name: str, shape: tuple[int, ...]) -> None:
    keys = jax.random.key(7, impl=name)
    made = jax.random.split(keys, shape) if shape else keys
    same(made, again(made))


def test_weak_types_nans_and_signs_come_back() -> None:
    same(jnp.asarray(2.5), again(jnp.asarray(2.5)))
    odd = np.array([np.nan, -np.nan, -0.0, np.inf], np.float32)
    odd.view(np.uint32)[0] = 0x7FC00123  # a payload
    same(jnp.asarray(odd), again(jnp.asarray(odd)))


def test_whether_it_may_be_moved_comes_back() -> None:
    free, placed = jnp.arange(4), jax.device_put(jnp.arange(4), jax.devices()[0])
    assert (free.committed, placed.committed) == (False, True)
    same(free, again(free))
    same(placed, again(placed))


ON_TWO_DEVICES = """
import jax, jax.numpy as jnp, sys
sys.path.insert(0, sys.argv[1])
from test_spilling import again, same

mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
P, named = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
for place in (named(mesh, P("x")), named(mesh, P()), named(mesh, P(None, "x")), jax.devices()[1]):
    array = jax.device_put(jnp.arange(16.0).reshape(4, 4), place)
    same(array, again(array))
    keys = jax.device_put(jax.random.split(jax.random.key(1), (4, 2)), place)
    same(keys, again(keys))
    with jax.enable_x64(True):
        wide = jax.device_put(jnp.arange(16).reshape(4, 4), place)
    same(wide, again(wide))
with jax.default_device(jax.devices()[1]):
    there = jnp.arange(3)
assert not there.committed
same(there, again(there))
weak = jax.jit(lambda: 2.5, out_shardings=named(mesh, P()))()
assert weak.weak_type
same(weak, again(weak))
"""


def test_places_come_back() -> None:
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", ON_TWO_DEVICES, str(Path(__file__).parent)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("what", ["a bit", "the end"])
def test_what_is_not_as_it_was_written_is_not_taken(what: str) -> None:
    file = io.BytesIO()
    stored = spilling.write(file, jnp.arange(100))
    data = bytearray(file.getvalue())
    if what == "a bit":
        data[200] ^= 1
    else:
        del data[-1:]
    with pytest.raises(spilling.Damaged, match=r"int32\[100\]"):
        spilling.read(io.BytesIO(data), stored)


class Full(io.BytesIO):
    """A file on a disk that has room for so many bytes."""

    room = 20 << 20

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_what_does_not_fit_leaves_no_rest_and_room_for_others() -> None:
    file = Full()
    first = spilling.write(file, jnp.arange(10))
    with pytest.raises(OSError, match="No space"):
        spilling.write(file, jnp.zeros(6 << 20, "float32"))  # the first part of it fits
    second = spilling.write(file, jnp.arange(10, 20))
    assert second.start == 40
    assert [spilling.read(file, stored)[0] for stored in (first, second)] == [0, 10]


def test_deleted_arrays_are_refused() -> None:
    array = jnp.arange(3)
    array.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        spilling.write(io.BytesIO(), array)
