"""The programs in progress, and their clients."""

import contextlib

from jitclient.wire.messages import Lookup, Prepare, Signature, Spec
from jitserver.server.in_progress import InProgress


def request(key: str) -> Prepare:
    signature = Signature(None, (Spec((2, 3), "float32"),), (), (), (), ())
    return Prepare(Lookup(key, "", (), signature), "step", "x.py:1")


def key_of(lookup: Lookup) -> str:
    return lookup.capture_key


def test_requests_for_one_program_are_grouped_the_working_one_first() -> None:
    in_progress, said = InProgress(), []
    with contextlib.ExitStack() as stack:
        stack.enter_context(in_progress.asked(request("a"), 1, said.append))
        say = stack.enter_context(in_progress.asked(request("a"), 2, said.append))
        stack.enter_context(in_progress.asked(request("b"), 3, said.append))
        say("tracing")
        say("compiling")
        first, second = in_progress.now(key_of)
    assert said == ["tracing", "compiling"]
    assert (first.key, first.label, first.phase, first.pids) == ("a", "step(f32[2,3])", "compiling", (2, 1))
    assert (second.key, second.phase, second.pids) == ("b", "loading", (3,))
    assert first.seconds >= second.seconds >= 0


def test_requests_that_ended_or_failed_are_removed() -> None:
    in_progress = InProgress()
    with contextlib.suppress(ZeroDivisionError), in_progress.asked(request("a"), 1, print):
        assert len(in_progress.now(key_of)) == 1
        raise ZeroDivisionError
    assert in_progress.now(key_of) == []
