"""The phases of a request, each of which lasts until the next one."""

import contextlib
import threading

from jitclient.wire.messages import Phase
from jitserver.programs import phases
from jitserver.programs.phases import Phases


def test_phases_follow_each_other_from_the_request_until_now() -> None:
    times = iter([100.0, 101.0, 103.0, 106.0])
    done = Phases(lambda: next(times))
    with phases.reported_to(done.add):
        phases.begin("tracing")
        phases.begin("compiling")
    phases.begin("running")
    assert done.until_now("unpacking") == (
        Phase("unpacking", 0.0, 1.0),
        Phase("tracing", 1.0, 2.0),
        Phase("compiling", 3.0, 3.0),
    )


def test_a_request_without_phases_has_the_first_one() -> None:
    times = iter([100.0, 104.0])
    assert Phases(lambda: next(times)).until_now("waiting") == (Phase("waiting", 0.0, 4.0),)


def test_the_innermost_comes_first_and_other_threads_are_left_alone() -> None:
    found: list[str] = []
    with phases.reported_to(lambda phase: found.append(f"outer {phase}")):
        with contextlib.suppress(ZeroDivisionError), phases.reported_to(lambda phase: found.append(f"inner {phase}")):
            phases.begin("tracing")
            raise ZeroDivisionError
        other = threading.Thread(target=phases.begin, args=("reading",))
        other.start()
        other.join()
        phases.begin("loading")
    assert found == ["inner tracing", "outer tracing", "outer loading"]
