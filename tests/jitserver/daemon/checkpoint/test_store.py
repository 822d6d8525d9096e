"""Arrays that were stored on the disk are restored with every visible property."""

import concurrent.futures
import math
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import msgspec
import numpy as np
import pytest

from jitclient.wire.array_transport import dtype_named, raw_bytes
from jitserver.daemon.checkpoint.manifests import StoredArray
from jitserver.daemon.checkpoint.store import ArrayStore
from jitserver.programs.devices import device_arrays
from jitserver.store.checked_files import Corrupt

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *(name for name in dir(ml_dtypes) if name.startswith(("float4", "float8", "int", "uint")) and hasattr(jnp, name)),
]  # an array of float6 cannot be made


@pytest.fixture
def store(tmp_path: Path) -> ArrayStore:
    return ArrayStore(tmp_path)


def again(array: jax.Array, folder: Path) -> jax.Array:
    """The array after a restart."""
    stored = ArrayStore(folder).write(array, math.inf)
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=StoredArray)
    return ArrayStore(folder).load(packed)


def same(one: jax.Array, other: jax.Array) -> None:
    assert other.aval == one.aval  # shape, dtype, weak type
    assert other.sharding == one.sharding
    assert other.committed == one.committed
    assert bytes(raw_bytes(device_arrays.to_host(other))) == bytes(raw_bytes(device_arrays.to_host(one)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 5)])
def test_every_dtype_is_restored(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    made = np.random.default_rng(1).integers(0, 2, shape).astype(dtype_named(dtype))
    with jax.enable_x64(True):
        array = jax.device_put(made)  # XLA crashes when it converts to some of them
    assert str(array.dtype) == dtype
    same(array, again(array, tmp_path))


@pytest.mark.parametrize("name", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (4,)])
def test_keys_are_restored(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    keys = jax.random.key(7, impl=name)
    made = jax.random.split(keys, shape) if shape else keys
    same(made, again(made, tmp_path))


def test_weak_types_nans_and_signs_are_restored(tmp_path: Path) -> None:
    same(jnp.asarray(2.5), again(jnp.asarray(2.5), tmp_path))
    odd = np.array([np.nan, -np.nan, -0.0, np.inf], np.float32)
    odd.view(np.uint32)[0] = 0x7FC00123  # a payload
    same(jnp.asarray(odd), again(jnp.asarray(odd), tmp_path))


def test_committed_is_restored(tmp_path: Path) -> None:
    free, placed = jnp.arange(4), jax.device_put(jnp.arange(4), jax.devices()[0])
    assert (free.committed, placed.committed) == (False, True)
    same(free, again(free, tmp_path))
    same(placed, again(placed, tmp_path))


ON_TWO_DEVICES = """
import jax, jax.numpy as jnp, pathlib, sys
sys.path.insert(0, sys.argv[1])
from test_store import again, same

folder = pathlib.Path(sys.argv[2])
mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
P, named = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
for place in (named(mesh, P("x")), named(mesh, P()), named(mesh, P(None, "x")), jax.devices()[1]):
    array = jax.device_put(jnp.arange(16.0).reshape(4, 4), place)
    same(array, again(array, folder))
    keys = jax.device_put(jax.random.split(jax.random.key(1), (4, 2)), place)
    same(keys, again(keys, folder))
    with jax.enable_x64(True):
        wide = jax.device_put(jnp.arange(16).reshape(4, 4), place)
    same(wide, again(wide, folder))
with jax.default_device(jax.devices()[1]):
    there = jnp.arange(3)
assert not there.committed
same(there, again(there, folder))
weak = jax.jit(lambda: 2.5, out_shardings=named(mesh, P()))()
assert weak.weak_type
same(weak, again(weak, folder))
"""


def test_shardings_are_restored(tmp_path: Path) -> None:
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", ON_TWO_DEVICES, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def test_equal_arrays_stay_two(store: ArrayStore, tmp_path: Path) -> None:
    one, other = store.write(jnp.zeros(5), math.inf), store.write(jnp.zeros(5), math.inf)
    following = ArrayStore(tmp_path)
    given = following.load(one)
    jax.jit(lambda x: x + 1, donate_argnums=0)(given)
    assert given.is_deleted()
    assert following.load(other).tolist() == [0] * 5


def test_a_file_is_one_array_as_long_as_it_is_in_use(store: ArrayStore, tmp_path: Path) -> None:
    stored = store.write(jnp.arange(5), math.inf)
    assert store.loaded(stored) is None
    first = store.load(stored)
    (tmp_path / stored.file).unlink()
    assert store.load(stored) is store.loaded(stored) is first, "it is not read again"
    del first
    assert store.loaded(stored) is None, "the store itself does not hold it"


def test_many_threads_load_the_same_array(store: ArrayStore) -> None:
    stored, start = store.write(jnp.zeros(100_000), math.inf), threading.Barrier(8)

    def load(_: int) -> Any:
        start.wait()
        return store.load(stored)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(load, range(8)))
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize("shared", [True, False])
def test_shared_is_restored(shared: bool, store: ArrayStore, tmp_path: Path) -> None:
    array = jnp.arange(5)
    if shared:
        device_arrays.share(array)
    back = ArrayStore(tmp_path).load(store.write(array, math.inf))
    assert (device_arrays.on_device(back) is not back) == shared


@pytest.mark.parametrize("what", ["a bit", "the end", "more"])
def test_a_damaged_file_is_refused(what: str, store: ArrayStore, tmp_path: Path) -> None:
    stored = store.write(jnp.arange(100), math.inf)
    data = bytearray((tmp_path / stored.file).read_bytes())
    if what == "a bit":
        data[200] ^= 1
    elif what == "more":
        data += b"."
    else:
        del data[-1:]
    (tmp_path / stored.file).write_bytes(data)
    with pytest.raises(Corrupt, match=r"int32\[100\]"):
        store.load(stored)


def test_a_file_of_another_user_is_refused(store: ArrayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    stored, uid = store.write(jnp.arange(3), math.inf), os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(Corrupt, match="another user"):
        store.load(stored)


def test_other_users_cannot_read_the_file(store: ArrayStore, tmp_path: Path) -> None:
    stored = store.write(jnp.arange(3), math.inf)
    assert (tmp_path / stored.file).stat().st_mode & 0o077 == 0


def test_a_failed_write_leaves_no_file(store: ArrayStore, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, before[1]))  # CPython ignores the signal
    try:
        with pytest.raises(OSError, match="too large"):
            store.write(jnp.zeros(6 << 20, "float32"), math.inf)  # the first part of it fits
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_a_write_without_time_leaves_no_file(store: ArrayStore, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        store.write(jnp.arange(3), time.monotonic() - 1)
    assert not list(tmp_path.iterdir())


def test_deleted_arrays_are_refused(store: ArrayStore, tmp_path: Path) -> None:
    array = jnp.arange(3)
    array.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        store.write(array, math.inf)
    assert not list(tmp_path.iterdir())
