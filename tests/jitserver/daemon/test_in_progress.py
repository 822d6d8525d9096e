"""The programs in progress, and their clients."""

import contextlib
import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jitclient.core import events
from jitclient.wire.messages import Lookup, Prepare, Signature, Spec
from jitserver.daemon.in_progress import InProgress

REQUEST = Prepare(
    Lookup("", "", (), Signature(None, (Spec((2, 3), "float32"),), (), (), (), ())), name="step", where="x.py:1"
)


@dataclasses.dataclass
class Client:
    pid: int
    said: list[str] = dataclasses.field(default_factory=list)
    has_gone: bool = False

    def is_abandoned(self) -> bool:
        return self.has_gone

    def report_phase(self, phase: str) -> None:
        self.said.append(phase)


@contextlib.contextmanager
def working(request: Any, *begun: str) -> Iterator[None]:
    """Work on a request in a thread of its own, where phases begin."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(request.__enter__).result()
        list(thread.map(events.log.begin, begun))
        yield
        thread.submit(request.__exit__, None, None, None).result()


def test_requests_for_one_program_are_grouped_the_working_one_first() -> None:
    in_progress, one, two, three = InProgress(), Client(1), Client(2), Client(3)
    with contextlib.ExitStack() as stack:
        stack.enter_context(in_progress.recording("a", REQUEST, one))
        stack.enter_context(working(in_progress.recording("a", REQUEST, two), "tracing", "compiling"))
        stack.enter_context(in_progress.recording("b", REQUEST, three))
        first, second = in_progress.now()
    assert two.said == ["tracing", "compiling"]
    assert (first.key, first.label, first.phase, first.pids) == ("a", "step(f32[2,3])", "compiling", (2, 1))
    assert (second.key, second.phase, second.pids) == ("b", "loading", (3,))
    assert first.seconds >= second.seconds >= 0


def test_a_program_whose_clients_have_gone_has_none() -> None:
    in_progress, one, two = InProgress(), Client(1), Client(2)
    with working(in_progress.recording("a", REQUEST, one), "compiling"), in_progress.recording("a", REQUEST, two):
        one.has_gone = True
        assert [(making.phase, making.pids) for making in in_progress.now()] == [("compiling", (2,))]
        two.has_gone = True
        assert [(making.phase, making.pids) for making in in_progress.now()] == [("compiling", ())]


def test_requests_that_ended_or_failed_are_removed() -> None:
    in_progress = InProgress()
    with contextlib.suppress(ZeroDivisionError), in_progress.recording("a", REQUEST, Client(1)):
        assert len(in_progress.now()) == 1
        raise ZeroDivisionError
    assert in_progress.now() == []
