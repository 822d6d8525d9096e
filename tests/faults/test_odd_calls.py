"""Calls that are right, but strain the protocol: they are answered, and the connection stays open."""

from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient import errors


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@jitclient.jit
def speechless(x: Any) -> Any:
    raise Unspeakable


@jitclient.jit
def unencodable(x: Any) -> Any:
    raise ValueError("half a pair: \udc80")


@jitclient.jit
def verbose(x: Any) -> Any:
    raise ValueError("x" * (20 << 20))


@jitclient.jit
def recursive(x: Any) -> Any:
    def again(y: Any) -> Any:
        return again(y)

    return again(x)


@jitclient.jit
def total(arrays: Any) -> Any:
    return sum(array[0] for array in arrays)


@pytest.mark.parametrize(
    ("function", "expected", "text"),
    [
        (unencodable, ValueError, "half a pair"),
        (verbose, ValueError, "xxxx"),
        (recursive, RecursionError, "maximum recursion"),
    ],
)
def test_an_exception_of_any_kind_arrives_as_one(
    unharmed: Any, client_of: Any, function: Any, expected: type[Exception], text: str
) -> None:
    with client_of(unharmed.address):
        with pytest.raises(expected, match=text) as caught:
            function(np.float32(1))
        assert not isinstance(caught.value, (errors.DaemonError, errors.ProtocolError))


def test_an_exception_without_a_text_arrives_as_its_own_type(unharmed: Any, client_of: Any) -> None:
    with client_of(unharmed.address), pytest.raises(Unspeakable):
        speechless(np.float32(1))


def test_hundreds_of_arrays_that_are_all_just_small_enough_travel_together(unharmed: Any, client_of: Any) -> None:
    arrays = [np.full(15_000, n, np.float32) for n in range(400)]  # 24 MB, more than one frame may have
    with client_of(unharmed.address):
        assert float(total(arrays)) == sum(range(400))
        held = jitclient.device_put(arrays)
        assert [float(one[0]) for one in held[::57]] == [float(n) for n in range(0, 400, 57)]
        assert float(total(held)) == sum(range(400))
        del held


DEEP = """
    import json, sys, warnings, numpy as np, jitclient
    from jitclient import errors

    def nested(x):
        for _ in range(700):
            x = [x]
        return x

    def depth(tree):
        levels = 0
        while isinstance(tree, list):
            tree, levels = tree[0], levels + 1
        return levels, float(tree)

    same, made = jitclient.jit(lambda tree: tree), jitclient.jit(nested)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        without_jax = "jax" not in sys.modules
        found = [without_jax, depth(same(nested(np.float32(2)))), depth(made(np.float32(3)))]
        found += [depth(same(nested(np.float32(4)))), depth(made(np.float32(5)))]
    try:
        jitclient.keep("deep", nested(np.float32(2)))
    except errors.CaptureError as error:
        found.append(str(error))
    print(json.dumps([*found, [str(warning.message) for warning in caught]]))
"""


@pytest.mark.slow
def test_trees_that_are_nested_too_deeply_run_in_the_process(unharmed: Any, run_script: Any) -> None:
    settings = {"JITSERVER_ADDRESS": unharmed.address, "JITSERVER_FALLBACK": "local"}
    without_jax, *values, kept, warned = run_script(DEEP, env=settings)
    assert without_jax
    assert values == [[700, 2], [700, 3], [700, 4], [700, 5]]
    why = "a tree is nested too deeply"
    assert why in kept
    assert len(warned) == 2
    assert all("runs in this process, on the cpu: " in warning and why in warning for warning in warned)


@pytest.mark.slow
def test_the_path_of_a_daemon_may_be_no_utf_8(
    new_daemon: Any, client_of: Any, works: Any, cli: Any, short_path: Any
) -> None:
    folder = short_path / "\udcff"
    folder.mkdir()
    address = f"unix:{folder}/d.sock"
    with new_daemon(address):
        with client_of(address):
            works()
        for command in (("status",), ("status", "--calls"), ("cache", "ls")):
            done = cli(*command, env={"JITSERVER_ADDRESS": address})
            assert (done.returncode, done.stderr) == (0, ""), command
