"""The programs in progress, and their clients."""

import contextlib

from jitclient.wire.messages import Lookup, Prepare, Signature, Spec
from jitserver.daemon.in_progress import InProgress

REQUEST = Prepare(
    Lookup("", "", (), Signature(None, (Spec((2, 3), "float32"),), (), (), (), ())), name="step", where="x.py:1"
)


def test_requests_for_one_program_are_grouped_the_working_one_first() -> None:
    in_progress, said = InProgress(), []
    with contextlib.ExitStack() as stack:
        stack.enter_context(in_progress.recording("a", REQUEST, 1, said.append))
        say = stack.enter_context(in_progress.recording("a", REQUEST, 2, said.append))
        stack.enter_context(in_progress.recording("b", REQUEST, 3, said.append))
        say("tracing")
        say("compiling")
        first, second = in_progress.now()
    assert said == ["tracing", "compiling"]
    assert (first.key, first.label, first.phase, first.pids) == ("a", "step(f32[2,3])", "compiling", (2, 1))
    assert (second.key, second.phase, second.pids) == ("b", "loading", (3,))
    assert first.seconds >= second.seconds >= 0


def test_requests_that_ended_or_failed_are_removed() -> None:
    in_progress = InProgress()
    with contextlib.suppress(ZeroDivisionError), in_progress.recording("a", REQUEST, 1, print):
        assert len(in_progress.now()) == 1
        raise ZeroDivisionError
    assert in_progress.now() == []
