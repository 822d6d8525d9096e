"""Executables with callbacks: each run asks its own client, and what does not fit is refused before XLA reads it."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback

from jitclient.errors import CaptureError
from jitclient.jaxside.callbacks import functions_of
from jitclient.wire.messages import Slot, Spec
from jitserver.programs import callbacks, executables
from jitserver.programs.callbacks import Executables

X = np.float32([1, 2, 3])
F3 = Spec((3,), "float32")


def lowered(function: Callable[..., Any], *arguments: Any) -> tuple[tuple[Slot, ...], Any]:
    """The slots of a function's callbacks, and its program."""
    traced = jax.jit(lambda *args: function(*args)).trace(*arguments)  # JAX caches what it lowers, by function
    program = traced.lower()
    return tuple(map(callbacks.slot_of, functions_of(traced, program))), program


def asks(x: Any) -> Any:
    return jax.pure_callback(lambda v: v, x, x) + 1


def asks_twice(x: Any) -> Any:
    return asks(asks(x))


@pytest.fixture
def asking_twice() -> Executables:
    return Executables(*lowered(asks_twice, X))


@pytest.fixture(params=["compiled here", "loaded"])
def asking(request: pytest.FixtureRequest) -> Executables:
    slots, program = lowered(asks, X)
    made = Executables(slots, program)
    return made if request.param == "compiled here" else Executables(slots, serialized=made.to_bytes())


KINDS: dict[str, tuple[Callable[..., Any], Slot]] = {
    "a value": (asks, Slot((F3,))),
    "two values": (
        lambda x: io_callback(lambda v: (v, v), (x, jax.ShapeDtypeStruct((), "int8")), x),
        Slot((F3, Spec((), "int8"))),
    ),
    "a value, in order": (lambda x: io_callback(lambda v: v, x, x, ordered=True), Slot((F3,), takes_token=True)),
    "no value": (lambda x: jax.debug.callback(lambda v: None, x), Slot(())),
    "no value, in order": (lambda x: jax.debug.callback(lambda v: None, x, ordered=True), Slot((), takes_token=True)),
    "a print": (lambda x: jax.debug.print("{}", x), Slot(())),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_slot_says_what_xla_expects(kind: str) -> None:
    function, slot = KINDS[kind]
    slots, program = lowered(function, X)
    assert slots == (slot,)
    given: list[tuple[int, Slot, list[Any]]] = []

    def ask(number: int, slot: Slot, arguments: Sequence[Any]) -> list[Any]:
        given.append((number, slot, [np.asarray(array).tolist() for array in arguments]))
        return [np.zeros(spec.shape, spec.dtype) for spec in slot.results]

    Executables(slots, program).run(ask, X)
    assert given == [(0, slot, [X.tolist()])]


def test_a_failed_callback_does_not_stop_one_device_of_several(asking_twice: Executables) -> None:
    asked: list[list[Any]] = []

    def ask(number: int, slot: Slot, arguments: Sequence[Any]) -> list[Any]:
        asked.append(np.asarray(arguments[0]).tolist())
        raise EOFError("the client is gone")

    with pytest.raises(RuntimeError, match="the client is gone"):
        asking_twice.run(ask, X, is_multi_device=True)
    assert asked == [X.tolist()]
    right = asking_twice.run(lambda number, slot, arguments: [np.asarray(arguments[0])], X, is_multi_device=True)
    assert np.asarray(right).tolist() == (X + 2).tolist()


@pytest.mark.parametrize("function", [len, lambda x: x, functools.partial(len)])
def test_a_callback_of_an_unknown_kind_is_refused(function: Any) -> None:
    with pytest.raises(CaptureError, match="unknown kind"):
        callbacks.slot_of(function)


@pytest.mark.parametrize("is_loaded", [False, True], ids=["compiled here", "loaded"])
def test_each_run_asks_its_own_client_though_one_waits_for_the_other(is_loaded: bool) -> None:
    slots, program = lowered(asks_twice, X)
    asking = Executables(slots, program)
    asking = Executables(slots, serialized=asking.to_bytes()) if is_loaded else asking
    found: dict[str, Any] = {}

    def second(number: int, slot: Slot, arguments: Sequence[Any]) -> list[Any]:
        return [np.asarray(arguments[0]) * 100]

    def first(number: int, slot: Slot, arguments: Sequence[Any]) -> list[Any]:
        if not found:
            other = threading.Thread(target=lambda: found.update(second=np.asarray(asking.run(second, X))))
            other.start()
            other.join()  # for ever, if the second run waited for this one
        return [np.asarray(arguments[0]) * 10]

    found["first"] = np.asarray(asking.run(first, X))
    assert found["first"].tolist() == ((X * 10 + 1) * 10 + 1).tolist()
    assert found["second"].tolist() == ((X * 100 + 1) * 100 + 1).tolist()


def test_runs_that_follow_each_other_share_an_executable(asking: Executables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_copy_executable", lambda: pytest.fail("it was made again"))
    for scale in (2, 3):
        result = asking.run(lambda number, slot, arguments, scale=scale: [np.asarray(arguments[0]) * scale], X)
        assert np.asarray(result).tolist() == (X * scale + 1).tolist()


def test_what_a_client_raises_fails_its_run_alone(asking: Executables) -> None:
    def ask(*_: Any) -> Any:
        raise EOFError("the client is gone")

    with pytest.raises(jax.errors.JaxRuntimeError, match="the client is gone"):
        asking.run(ask, X)
    result = asking.run(lambda number, slot, arguments: [np.asarray(arguments[0])], X)
    assert np.asarray(result).tolist() == (X + 1).tolist()


WRONG = {
    "a longer array": [np.zeros(4, np.float32)],
    "a shorter array": [np.zeros(2, np.float32)],
    "another dtype": [np.zeros(3, np.int32)],
    "more axes": [np.zeros((3, 1), np.float32)],
    "too few": [],
    "too many": [np.zeros(3, np.float32)] * 2,
}


@pytest.mark.parametrize("what", WRONG)
def test_results_of_another_form_never_reach_the_program(asking: Executables, what: str) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="unexpected shape or dtype"):
        asking.run(lambda *_: WRONG[what], X)


def test_no_client_is_asked_after_its_run(asking: Executables) -> None:
    asking.run(lambda number, slot, arguments: [np.asarray(arguments[0])], X)
    with pytest.raises(jax.errors.JaxRuntimeError, match="after its run had finished"):
        jax.block_until_ready(asking._first.compiled(X))


@pytest.mark.parametrize("count", [1, 3])
def test_an_executable_with_another_number_of_callbacks_is_refused_before_it_runs(count: int) -> None:
    slots, program = lowered(asks_twice, X)
    assert len(slots) == 2
    serialized = Executables(slots, program).to_bytes()
    with pytest.raises(ValueError, match=f"the executable calls 2 functions, expected {count}"):
        Executables(slots[:1] * count, serialized=serialized)


def test_an_executable_without_callbacks_is_refused_where_some_are_expected() -> None:
    serialized = executables.to_bytes(jax.jit(lambda x: x + 1).lower(X).compile())
    with pytest.raises(ValueError, match="the executable calls 0 functions, expected 1"):
        Executables((Slot((F3,)),), serialized=serialized)


def test_an_executable_with_callbacks_is_refused_where_none_is_expected() -> None:
    slots, program = lowered(asks, X)
    serialized = Executables(slots, program).to_bytes()
    with pytest.raises(ValueError, match="the executable calls 1 functions, expected 0"):
        executables.from_bytes(serialized)
