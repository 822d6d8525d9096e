"""An exception of the user's function reaches the user unchanged, of whatever class, after one run of the function."""

import gc
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jitclient
from jitclient import errors

pytestmark = pytest.mark.usefixtures("daemon")


class Demanding(Exception):
    def __init__(self, text: str, *, more: int) -> None:
        super().__init__(f"{text} {more}")
        self.more = more


class Speechless(Exception):
    def __init__(self) -> None:
        super().__init__("never said")

    def __str__(self) -> str:
        raise RuntimeError("of __str__")


class Slotted(Exception):
    __slots__ = ("held",)

    def __init__(self, held: int) -> None:
        self.held = held


class Uncommon(BaseException):
    pass


KINDS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("of the user"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(4),
    "MemoryError": MemoryError,
    "OSError": lambda: OSError(2, "no file", "name"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "bad"),
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError(1)]),
    "BaseException": lambda: Uncommon("of the user"),
    "an __init__ with keywords": lambda: Demanding("of the user", more=3),
    "a __str__ that raises": Speechless,
    "slots": lambda: Slotted(5),
    **{
        f"ours: {kind.__name__}": lambda kind=kind: kind("of the user")
        for kind in (
            *(errors.CaptureError, errors.DaemonLost, errors.DaemonUnavailable, errors.Incompatible, errors.ArrayLost),
            *(errors.ArrayBudgetExceeded, errors.ProgramLost, errors.ProgramsDiffer, errors.SessionBusy),
            *(errors.CrashesDaemon, errors.ProtocolError),
        )
    },
}


def outcome(jit: Callable[..., Any], make: Callable[[], BaseException], stage: str) -> list[Any]:
    """Return the exception's class, arguments, user lines and chain, and how often the function ran."""
    runs: list[int] = []

    def fails(x: Any) -> Any:
        runs.append(1)
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            raise make()  # noqa: B904  (its context counts)

    jitted = jit(fails)
    try:
        jitted(jnp.ones(2)) if stage == "call" else jitted.lower(jnp.ones(2)).compile()
    except BaseException as error:
        lines = [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
        return [type(error), error.args, lines, type(error.__context__), error.__cause__, len(runs)]
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("stage", ["call", "compile"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_raised_as_it_is(kind: str, stage: str) -> None:
    found = outcome(jitclient.jit, KINDS[kind], stage)
    assert repr(found) == repr(outcome(jax.jit, KINDS[kind], stage))
    assert found[-1] == 1
    assert jitclient.jit(lambda x: x + 1)(2.0) == 3  # the session works


def test_it_keeps_the_error_that_was_being_handled() -> None:
    def fails(x: Any) -> Any:
        raise errors.CaptureError("of the user")

    outer, raised = KeyError("key"), None
    try:
        raise outer
    except KeyError:
        try:
            jitclient.jit(fails)(1.0)
        except errors.CaptureError as error:
            raised = error
    assert raised is not None
    assert raised.__context__ is outer


def test_it_is_in_no_cycle() -> None:
    class Mine(Exception):
        pass

    def fails(x: Any) -> Any:
        raise Mine

    def raised() -> weakref.ref[Any]:
        try:
            jitclient.jit(fails)(1.0)
        except Mine as error:
            return weakref.ref(error)
        raise AssertionError

    gc.disable()
    try:
        assert raised()() is None
    finally:
        gc.enable()


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return x * 2


@pytest.mark.usefixtures("shared_daemon")
def test_a_function_without_a_hash_raises_what_jax_raises() -> None:
    with pytest.raises(TypeError) as theirs:
        jax.jit(Unhashable())(1.0)
    with pytest.raises(TypeError) as ours, jax.enable_x64(True):  # so that JAX cannot reuse its trace
        jitclient.jit(Unhashable())(1.0)
    assert str(ours.value) == str(theirs.value)
    assert "Please report" not in "".join(traceback.format_exception(ours.value))
