"""The baselines compute what they are asked to, and a contender that answers wrongly is found out."""

import functools
import socket
import threading

import numpy as np
import pytest

from benchmarks.crew import crew
from benchmarks.rivals import Caller, bare_socket, disk_cache, ours, plain_jax, why_missing
from benchmarks.scenarios import array_size, functions, leaves, pipelined, remote, small_call

WORKLOADS = {
    "small call": functools.partial(small_call.three_arrays, seconds=0.0),
    "array": functools.partial(array_size.there_and_back, size=64, seconds=1e-9),
    "remote": functools.partial(remote.put_and_fetched, size=64, seconds=1e-9),
    "leaves": functools.partial(leaves.numpy_leaves, leaves=3, seconds=0.0),
    "functions": functools.partial(functions.many_functions, count=3, budget=60.0, seconds=0.0),
    "steps": functools.partial(pipelined.small_steps, calls=3),
    "matrices": functools.partial(pipelined.matrix_steps, side=4, calls=3),
    "trees": functools.partial(pipelined.tree_steps, leaves=2, calls=3),
}


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)
def test_a_wrong_answer_is_found_out(workload: functools.partial) -> None:
    right = Caller(lambda fun: fun)
    assert workload(right)()
    wrong = Caller(lambda fun: fun, look=lambda result: right.look(result) + 0.5)
    with pytest.raises(AssertionError):
        workload(wrong)()


@pytest.mark.parametrize("size", [0, 10, 100_000, 5_000_000])
def test_messages_of_the_bare_socket(size: int) -> None:
    message = {"arrays": [np.arange(size), np.ones(3)], "text": "x" * size}
    here, there = socket.socketpair()
    with here, there:
        sender = threading.Thread(target=bare_socket.send, args=(here, message))
        sender.start()
        received = bare_socket.receive(there)
        sender.join()
    np.testing.assert_array_equal(received["arrays"][0], message["arrays"][0])
    np.testing.assert_array_equal(received["arrays"][1], message["arrays"][1])
    assert received["text"] == message["text"]


@pytest.mark.slow
def test_what_fails_in_one_contender_is_said_and_the_others_go_on() -> None:
    with crew((plain_jax, bare_socket)) as contenders:
        samples = contenders.compare("", fails_without_put, rounds=2)
        assert samples.taken == {"plain jax.jit": [1.0, 1.0]}
        assert "no put here" in samples.failed["bare socket"]
        again = contenders.compare("", fails_without_put, rounds=1)
        assert list(again.taken) == ["plain jax.jit"]
        assert list(again.failed) == ["bare socket"]


def fails_without_put(caller: Caller) -> object:
    put = caller.put(np.ones(2))
    if isinstance(put, np.ndarray):
        raise RuntimeError("no put here")
    return lambda: 1.0


def test_a_rival_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "NEEDS", ("no_such_package",))
    with crew((disk_cache,)) as contenders:
        samples = contenders.compare("", fails_without_put, rounds=1)
    assert samples.taken == {}
    assert "no_such_package" in samples.missing["JAX's disk cache"]
    assert why_missing(ours) == ""
