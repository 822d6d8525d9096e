"""`jitclient.Array`: its bytes, and when it is freed. What it looks like is in test_operations.py."""

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


def test_to_wait_for_it_gives_it_back(array: jitclient.Array) -> None:
    assert array.block_until_ready() is array


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


def test_a_conversion_that_was_interrupted_does_not_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    array, begun = jitclient.jit(lambda x: x + 1)(jitclient.device_put(VALUE)), list[Any]()

    def interrupted(self: Any) -> Any:
        begun.append(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jitclient.Array, "_fetched", interrupted)
        with pytest.raises(KeyboardInterrupt):
            np.asarray(array)
        for convert, given in (array.__buffer__, [0]), (array.__array__, []):  # as numpy does from Python 3.12 on
            with pytest.raises(KeyboardInterrupt):
                convert(*given)
        assert len(begun) == 2
        with pytest.raises(KeyboardInterrupt):
            array.__buffer__(0)  # as `memoryview` does
    np.testing.assert_array_equal(np.asarray(array), VALUE + 1)
