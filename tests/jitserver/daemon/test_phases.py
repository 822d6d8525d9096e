"""The phases of a request, each of which lasts until the next one."""

from jitclient.wire.messages import Phase
from jitserver.daemon.phases import Phases


def test_phases_follow_each_other_from_the_request_until_now() -> None:
    times = iter([100.0, 101.0, 103.0, 106.0])
    reported: list[str] = []
    phases = Phases(reported.append, lambda: next(times))
    phases.report("tracing")
    phases.report("compiling")
    assert phases.until_now("unpacking") == (
        Phase("unpacking", 0.0, 1.0),
        Phase("tracing", 1.0, 2.0),
        Phase("compiling", 3.0, 3.0),
    )
    assert reported == ["tracing", "compiling"]


def test_a_request_without_phases_has_the_first_one() -> None:
    times = iter([100.0, 104.0])
    assert Phases(print, lambda: next(times)).until_now("waiting") == (Phase("waiting", 0.0, 4.0),)
