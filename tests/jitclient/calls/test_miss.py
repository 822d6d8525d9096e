"""The facts of a miss reach the table of reasons, and the user reads why a call stays in this process."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jitclient
from jitclient.calls import general_path, miss
from jitclient.calls.own_trace import OwnTrace
from jitclient.calls.program import Program
from jitclient.jaxside import context
from jitclient.session.session import Session
from jitclient.wire.connection import ClientConnection
from jitclient.wire.messages import Spec

X = np.float32(2)


def uncapturable() -> Callable[[Any], Any]:
    threes = (3 for _ in itertools.count())

    def fun(x: Any) -> Any:
        return x * next(threes)

    return fun


@contextlib.contextmanager
def seed_offset() -> Iterator[None]:
    jax.config.update("jax_random_seed_offset", 1)
    try:
        yield
    finally:
        jax.config.update("jax_random_seed_offset", 0)


@pytest.mark.usefixtures("daemon")
def test_a_placed_program_that_no_other_process_finds_runs_here() -> None:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with pytest.raises(jitclient.CaptureError, match=r"generator.*; the program refers to shardings or devices"):
        jitclient.jit(uncapturable(), out_shardings=here)(X)


@pytest.mark.usefixtures("daemon")
def test_a_setting_of_the_whole_process_keeps_programs_here() -> None:
    setting = "the setting jax_random_seed_offset = 1 applies to a whole process"
    with seed_offset():
        with pytest.raises(jitclient.CaptureError, match=f"^{setting}"):
            jitclient.jit(lambda x: x * 5)(X)
        with pytest.raises(jitclient.CaptureError, match=f"generator.*; {setting}"):
            jitclient.jit(uncapturable())(X)


@pytest.mark.usefixtures("daemon")
def test_one_of_several_processes_captures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "is_one_of_several", lambda: True)
    monkeypatch.setattr(general_path, "capture", lambda *given, **kinds: pytest.fail("captured"))
    with pytest.raises(jitclient.CaptureError, match=r"^this process is one of several"):
        jitclient.jit(lambda x: x * 7)(X)


@pytest.mark.usefixtures("daemon")
def test_a_process_that_cannot_trace_leaves_it_to_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miss, "_can_trace", lambda: False)
    monkeypatch.setattr(OwnTrace, "run", lambda *given: pytest.fail("traced"))
    assert float(jitclient.jit(lambda x: x * 11)(X)) == 22
    with pytest.raises(ZeroDivisionError):  # of the daemon's trace
        jitclient.jit(lambda x: x * (1 // 0))(X)
    with pytest.raises(jitclient.CaptureError, match="generator"):
        jitclient.jit(uncapturable())(X)


# Not `daemon`, because the client traces these functions alone.
@pytest.mark.usefixtures("shared_daemon")
@pytest.mark.parametrize("verify", ["off", "new", "always"])
def test_what_only_this_process_traces_runs_on_the_daemon(verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_VERIFY", verify)
    called: list[Program] = []
    call = Program.call
    monkeypatch.setattr(Program, "call", lambda self, *given: called.append(self) or call(self, *given))
    assert float(jitclient.jit(uncapturable())(X)) == 6
    assert float(jitclient.jit(lambda x: x * 13, deps=["HOME"])(X)) == 26
    assert len(called) == 2


def test_values_of_another_trace_are_arguments_that_the_call_does_not_have() -> None:
    def own_trace(*specs: Spec) -> OwnTrace:
        own = OwnTrace(lambda: jax.jit(lambda x: x), (X,), {}, [X], specs)
        own.run("cpu", [], None, "")
        return own

    same, other, none = own_trace(Spec((), "float32")), own_trace(Spec((), "int32")), own_trace()
    assert [own.uses_outer_trace() for own in (same, other, none)] == [False, False, True]
    assert [own.flattens_differently() for own in (same, other)] == [False, True]


@pytest.mark.usefixtures("daemon")
def test_a_straight_miss_is_four_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def noted(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            sent.append(kind or str(args[0]))
            return function(self, *args, **kwargs)

        return call

    first = jitclient.jit(lambda x: x + 0.125)  # alive until the end, so that there is nothing to report
    assert float(first(X)) == 2.125
    monkeypatch.setattr(ClientConnection, "begin", noted("", ClientConnection.begin))
    monkeypatch.setattr(Session, "run", noted("run", Session.run))
    assert float(jitclient.jit(lambda x: x * 0.0625)(X)) == 0.125
    assert sent == ["lookup", "prepare", "settle", "run"]


def handled_by_name(x: Any) -> Any:
    return x + (2 if sys.exc_info()[0] is ValueError else sys.exc_info()[0] is not None)


def handled_by_text(x: Any) -> Any:
    handled = getattr(sys, "exc_" + "info")()[0]
    return x + (2 if handled is ValueError else handled is not None)


def uncapturable_that_handles() -> Callable[[Any], Any]:
    zeros = (0 for _ in itertools.count())
    return lambda x: handled_by_text(x) + next(zeros)


@pytest.mark.usefixtures("shared_daemon")
@pytest.mark.parametrize("function", [handled_by_name, handled_by_text, uncapturable_that_handles()])
@pytest.mark.filterwarnings("ignore:.*is traced in each process")
def test_a_function_sees_the_exception_that_its_caller_handles_and_none_of_ours(function: Callable[..., Any]) -> None:
    assert float(jitclient.jit(lambda x: function(x))(X)) == 2
    try:
        raise ValueError
    except ValueError:
        assert float(jitclient.jit(lambda x: function(x))(X)) == 4
    assert float(jitclient.jit(lambda x: function(x))(X)) == 2
