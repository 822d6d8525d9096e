"""What is being made now, and for whom."""

import contextlib

from jitclient.wire.messages import Lookup, Prepare, Signature, Spec
from jitserver.server.in_progress import Makings

REQUEST = Prepare(
    Lookup("", "", (), Signature(None, (Spec((2, 3), "float32"),), (), (), (), ())), name="step", where="x.py:1"
)


def test_those_who_ask_for_the_same_are_told_together_the_one_at_work_first() -> None:
    makings, said = Makings(), []
    with contextlib.ExitStack() as stack:
        stack.enter_context(makings.asked("a", REQUEST, 1, said.append))
        say = stack.enter_context(makings.asked("a", REQUEST, 2, said.append))
        stack.enter_context(makings.asked("b", REQUEST, 3, said.append))
        say("tracing")
        say("compiling")
        first, second = makings.now()
    assert said == ["tracing", "compiling"]
    assert (first.key, first.label, first.phase, first.pids) == ("a", "step(f32[2,3])", "compiling", (2, 1))
    assert (second.key, second.phase, second.pids) == ("b", "loading", (3,))
    assert first.seconds >= second.seconds >= 0


def test_what_has_ended_or_failed_is_told_no_more() -> None:
    makings = Makings()
    with contextlib.suppress(ZeroDivisionError), makings.asked("a", REQUEST, 1, print):
        assert len(makings.now()) == 1
        raise ZeroDivisionError
    assert makings.now() == []
