"""`jitclient.Array` without a look, and looks, against numpy and jax."""

import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jitclient
from jitclient.session import process

pytestmark = pytest.mark.usefixtures("daemon")

VALUE = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def array() -> jitclient.Array:
    return jitclient.device_put(VALUE)


def test_what_is_known_without_a_look(array: jitclient.Array) -> None:
    assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes) == ((3, 4), np.float32, 2, 12, 48)
    assert not array.weak_type
    assert array.is_ready()
    assert array.block_until_ready() is array
    assert len(array) == 3


def test_looks(array: jitclient.Array) -> None:
    np.testing.assert_array_equal(np.asarray(array), VALUE)
    assert array.tolist() == VALUE.tolist()
    assert array.item(5) == 5
    assert np.asarray(array, dtype=np.float64).dtype == np.float64
    assert f"{array}" == f"{VALUE}"


def test_its_bytes_are_those_of_the_elements() -> None:
    value = np.arange(3, dtype=np.int32)
    array = jitclient.device_put(value)
    assert bytes(array) == bytes(jnp.asarray(value)) == value.tobytes()
    assert array.__buffer__(0).tobytes() == value.tobytes()
    if sys.version_info >= (3, 12):
        assert memoryview(array).tobytes() == value.tobytes()


def test_a_look_is_read_only_and_a_copy_is_not(array: jitclient.Array) -> None:
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(array)[0] = 1
    np.array(array, copy=True)[0] = 1
    np.testing.assert_array_equal(np.asarray(array), VALUE)


def test_scalars() -> None:
    number = jitclient.device_put(3)
    assert (int(number), float(number), complex(number), bool(number), number.item()) == (3, 3.0, 3 + 0j, True, 3)
    assert [10, 20, 30, 40][number] == 40
    assert f"{jitclient.device_put(np.float32(1.25)):.1f}" == "1.2"


@pytest.mark.parametrize("look", [float, int, complex, bool])
def test_only_scalars_become_scalars(array: jitclient.Array, look: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        look(array)
    with pytest.raises((TypeError, ValueError)):
        look(jnp.asarray(VALUE))


def test_what_is_no_index_is_none() -> None:
    for value in (np.float32(1), VALUE, np.bool_(True)):
        with pytest.raises(TypeError):
            [1, 2][jitclient.device_put(value)]


def test_zero_dimensions_have_no_length() -> None:
    number = jitclient.device_put(1.0)
    with pytest.raises(TypeError):
        len(number)
    with pytest.raises(TypeError):
        iter(number)


def test_repr(array: jitclient.Array) -> None:
    assert repr(jitclient.device_put(2.5)) == "Array(2.5, dtype=float32, weak_type=True)"
    assert repr(array).startswith("Array([[ 0.,  1.,  2.,  3.],\n")
    assert repr(array).endswith("dtype=float32)")


def test_it_is_not_hashable_as_in_jax(array: jitclient.Array) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(array)
    with pytest.raises(TypeError, match="unhashable"):
        hash(jnp.asarray(VALUE))


def test_the_last_handle_frees_it(cli: Callable[..., Any], until: Callable[..., Any]) -> None:
    def held() -> int:  # by this process: others of tests before may end meanwhile
        found = json.loads(cli("arrays", "ls", "--json").stdout)["sessions"]
        return sum(one["arrays"] for one in found if one["pid"] == os.getpid())

    gc.collect()  # what tests before have left is none of its concern
    until(lambda: not process.session().drops, "what they have left to be freed")
    before = held()
    arrays = [jitclient.device_put(VALUE + n) for n in range(3)]
    assert held() == before + 3
    del arrays[0]
    until(lambda: held() == before + 2, "the first array to be freed")
    cycle: list[Any] = [arrays.pop()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    until(lambda: held() == before + 1, "the array in a cycle to be freed")
    assert arrays[0].tolist() == (VALUE + 1).tolist()


def test_an_array_of_another_process_is_not_freed_by_it(
    cli: Callable[..., Any], until: Callable[..., Any], run_script: Callable[..., Any]
) -> None:
    pid = run_script(
        """
        import json, os, numpy as np, jitclient
        keep = jitclient.device_put(np.zeros(5))
        assert keep[0] == 0
        print(json.dumps(os.getpid()))
        """
    )

    def holders() -> list[int]:
        return [one["pid"] for one in json.loads(cli("arrays", "ls", "--json").stdout)["sessions"] if one["arrays"]]

    until(lambda: pid not in holders(), "a process that ended to hold nothing")
