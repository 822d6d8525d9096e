"""Operations on storage that hangs."""

import threading
from collections.abc import Iterator

import pytest

from jitserver.store.deadline import Deadlines, StorageHangs

LONG = 600.0


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    """An event that storage waits for."""
    event = threading.Event()
    yield event
    event.set()


def test_results_and_errors_come_back() -> None:
    deadlines = Deadlines()
    assert deadlines.run(lambda: 3, LONG) == 3
    for error in (KeyError("own"), TimeoutError("own")):
        with pytest.raises(type(error), match="own"):
            deadlines.run(lambda error=error: (_ for _ in ()).throw(error), LONG)


def test_nothing_waits_for_storage_that_hangs_until_it_answers(answers: threading.Event) -> None:
    deadlines, returned = Deadlines(), threading.Event()
    threads = []

    def hang() -> None:
        threads.append(threading.get_ident())
        answers.wait()
        returned.set()

    with pytest.raises(StorageHangs, match="has not answered"):
        deadlines.run(hang, 0.01)
    for _ in range(100):
        with pytest.raises(StorageHangs, match="has not returned"):
            deadlines.run(hang, LONG)
    assert len(threads) <= 1
    answers.set()
    assert returned.wait(LONG)
    while deadlines._overdue:
        threading.Event().wait(0.001)
    assert deadlines.run(lambda: "it answers again", LONG) == "it answers again"
