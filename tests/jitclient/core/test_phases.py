"""The phases of a thread's work, each of which lasts until the next one."""

import contextlib
import threading

from jitclient.core.events import Log


def test_phases_follow_each_other_from_the_first_until_the_end() -> None:
    times = iter([0, 100, 101, 103, 106])
    log = Log(lambda: next(times))
    with log.phases("unpacking") as done:
        log.begin("tracing")
        log.begin("compiling")
    log.begin("running")
    assert [event[:4] for event in done] == [
        ("unpacking", "", 100, 101),
        ("tracing", "", 101, 103),
        ("compiling", "", 103, 106),
    ]
    assert list(log.events) == done


def test_work_without_phases_has_the_first_one() -> None:
    times = iter([0, 100, 104])
    log = Log(lambda: next(times))
    with contextlib.suppress(ZeroDivisionError), log.phases("waiting") as done:
        raise ZeroDivisionError
    assert [event[:4] for event in done] == [("waiting", "", 100, 104)]


def test_the_innermost_comes_first_and_other_threads_are_left_alone() -> None:
    found: list[str] = []
    log = Log()
    with log.observed_by(lambda phase: found.append(f"outer {phase}")):
        with contextlib.suppress(ZeroDivisionError), log.observed_by(lambda phase: found.append(f"inner {phase}")):
            log.begin("tracing")
            raise ZeroDivisionError
        with log.observed_by(alone=True):
            log.begin("lowering")
        other = threading.Thread(target=log.begin, args=("reading",))
        other.start()
        other.join()
        log.begin("loading")
    assert found == ["inner tracing", "outer tracing", "outer loading"]
