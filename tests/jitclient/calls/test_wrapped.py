"""Attributes that `functools.wraps` and the like copy between jitted functions never decide how they run."""

import copy
import functools
import os
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import jax
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

KINDS = {"plain": jitclient.jit, "auto static": functools.partial(jitclient.jit, auto_static=True)}
jits = pytest.mark.parametrize("jit", KINDS.values(), ids=KINDS)


def square(x: Any) -> Any:
    return x * x


def used_in_a_trace(jitted: Any) -> Any:
    jax.jit(lambda x: jitted(x))(1.0)
    jitted(1.0)
    return jitted


@jits
def test_a_jitted_function_wraps_another(jit: Callable[..., Any]) -> None:
    gradient = jit(jax.grad(used_in_a_trace(jit(square))))
    assert float(gradient(3.0)) == float(jax.jit(gradient)(3.0)) == 6


@jits
def test_a_decorator_between_two_keeps_its_effect(jit: Callable[..., Any]) -> None:
    inner = used_in_a_trace(jit(square))

    @jit
    @functools.wraps(inner)
    def outer(x: Any) -> Any:
        return inner(x) + 1

    assert float(outer(3.0)) == float(jax.jit(outer)(3.0)) == 10
    assert float(inner(3.0)) == 9


@jits
def test_what_holds_nothing_but_a_description_is_copied(jit: Callable[..., Any]) -> None:
    jitted = used_in_a_trace(jit(square))
    jitted.note = "mine"
    # Python 3.12 copies `__type_params__` as well.
    assert set(vars(jitted)) - set(vars(jax.jit(square))) - {"__type_params__"} == {"note"}
    assert functools.wraps(jitted)(lambda x: x).note == jit(jitted).note == "mine"  # type: ignore[attr-defined]


@jits
def test_copies_and_pickles_compute_the_same(jit: Callable[..., Any]) -> None:
    jitted = used_in_a_trace(jit(square))
    for twin in (copy.copy(jitted), copy.deepcopy([jitted])[0], pickle.loads(pickle.dumps(jitted))):
        assert float(twin(3.0)) == 9


@jits
def test_a_pickle_of_a_jitted_function_is_one_and_finds_its_program(
    jit: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    factor = 13

    def times(x: Any) -> Any:
        return x * factor

    jitted = jit(times)
    assert float(jitted(2.0)) == 26
    before = counts()["compiles"]
    back = cloudpickle.loads(cloudpickle.dumps(jitted))
    assert type(back) is type(jitted)
    assert jitclient.function_key(back) == jitclient.function_key(jitted)
    assert float(back(2.0)) == 26
    assert counts()["compiles"] == before


@jits
def test_a_pickle_keeps_the_declared_inputs(jit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(x: Any) -> Any:
        return x * float(os.environ["SCALE_OF_PICKLES"])

    monkeypatch.setenv("SCALE_OF_PICKLES", "2")
    jitted = jit(scaled, deps=["SCALE_OF_PICKLES"])
    back = cloudpickle.loads(cloudpickle.dumps(jitted))
    assert jitclient.function_key(back) == jitclient.function_key(jitted)
    assert pickle.dumps(back.__reduce__()[1][1:]) == pickle.dumps(jitted.__reduce__()[1][1:])


class Fields:
    """An object whose fields are called as what a jitted function has."""

    def __init__(self) -> None:
        for name in dir(jitclient.jit(square)):
            if not name.startswith("__"):
                setattr(self, name, "a field")

    def __call__(self, x: Any) -> Any:
        return x * 7


@jits
def test_an_object_may_have_fields_of_any_name(jit: Callable[..., Any]) -> None:
    jitted = jit(Fields())
    assert float(jitted(2.0)) == float(jax.jit(jitted)(2.0)) == 14


IN_OTHER_PROCESSES = """
    import concurrent.futures, json, multiprocessing, pathlib, sys
    import cloudpickle
    import jitclient

    def power(x, n):
        return x if n == 1 else x * power(x, n - 1)  # n must be static

    jitted = jitclient.jit(power, static_argnames="n")

    def called(pickled):
        function = cloudpickle.loads(pickled)
        return type(function).__name__, function._options.given(), float(function(3.0, n=4))

    def called_as_argument(function):
        return called(cloudpickle.dumps(function))

    if __name__ == "__main__":
        first = float(jitted(3.0, n=4))
        found = [called_as_argument(jitted)]
        for method in ("spawn", "fork"):
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
                found.append(pool.submit(called_as_argument, jitted).result())  # by pickle
                found.append(pool.submit(called, cloudpickle.dumps(jitted)).result())  # as joblib does
        print(json.dumps([first, found]))
"""


def test_other_processes_get_it_with_its_options_and_find_its_program(
    run_script: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> None:
    before = counts()["compiles"]
    first, found = run_script(IN_OTHER_PROCESSES)
    assert first == 81
    kind, options, _ = found[0]
    assert kind == "RemoteFunction"
    assert options["static_argnames"] == ["n"]
    assert found == [[kind, options, 81.0]] * 5
    assert counts()["compiles"] == before + 1
