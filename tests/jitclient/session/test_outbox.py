"""The calls that a client keeps until they are answered, and those that it sends again."""

import pytest

from jitclient.errors import ProtocolError
from jitclient.session.outbox import MAX_RUNS, Drops, Outbox
from jitclient.wire.messages import MAX_ITEMS, Call, Run


def called(*results: int) -> Outbox:
    """An outbox with a Run for each of these calls."""
    outbox = Outbox()
    for first in results:
        outbox.add(Call(0, [], first, (100 + first,)))
        outbox.enter(Run(calls=outbox.queue), may_resend=True)
    return outbox


def runs_of(outbox: Outbox) -> list[tuple[int, list[int]]]:
    return [(sent.run.number, [call.results for call in sent.run.calls]) for sent in outbox.unanswered]


def test_a_handle_is_answered_when_its_call_is() -> None:
    outbox = called(5)
    outbox.add(Call(0, [], 7))
    assert [outbox.is_answered(handle) for handle in (4, 5, 6, 7)] == [True, False, False, False]
    outbox.answered(1)
    assert [outbox.is_answered(handle) for handle in (6, 7)] == [True, False]
    outbox.enter(Run(calls=outbox.queue), may_resend=True)
    outbox.answered(2)
    assert outbox.is_answered(7)
    assert not outbox


@pytest.mark.parametrize("number", [2, 3])
def test_answers_come_in_order(number: int) -> None:
    with pytest.raises(ProtocolError, match=f"answered Run {number} out of order"):
        called(1, 2).answered(number)


def test_a_queue_is_sent_once_the_daemon_has_nothing_to_do_or_there_are_many_calls() -> None:
    outbox = Outbox()
    assert outbox.batch() is None
    outbox.add(Call(0, [], 1))
    first = outbox.batch()
    assert first is not None
    sent = outbox.enter(first, may_resend=True)
    for n in range(31):
        outbox.add(Call(0, [], 2 + n))
    assert outbox.batch() is None
    assert outbox.add(Call(0, [], 33))
    full = outbox.batch()
    assert full is not None
    assert len(full.calls) == 32
    outbox.answered(sent.run.number)


def test_a_run_beyond_the_window_waits_but_for_a_single_one() -> None:
    outbox = Outbox()
    assert outbox.weigh(outbox.enter(Run(), may_resend=True), 10 << 20)
    assert not outbox.weigh(outbox.enter(Run(), may_resend=True), 1)
    outbox.answered(1)
    assert outbox.may_send()
    for _ in range(MAX_RUNS):
        assert outbox.may_send()
        outbox.enter(Run(), may_resend=True)
    assert not outbox.may_send()


@pytest.mark.parametrize("begun", [0, 1, 2])
def test_after_a_break_only_what_was_not_begun_is_sent_again(begun: int) -> None:
    outbox = called(1, 2)
    outbox.add(Call(0, [], 3))
    assert outbox.resume(begun) == []
    assert runs_of(outbox) == [(1, [1]), (2, [2])][begun:]
    assert [call.results for call in outbox.queue] == [3]
    assert outbox.number == 2


def test_what_is_left_to_whoever_asked_is_not_sent_again_and_drops_what_it_carried() -> None:
    outbox = called(1)
    outbox.enter(Run(calls=[Call(0, [1], 2, (7,))], drop=(8,)), may_resend=False)
    assert outbox.resume(0) == [8, 7]
    assert runs_of(outbox) == [(1, [1])]
    assert outbox.resume(0) == []


def test_a_call_that_was_interrupted_while_it_was_entered_is_in_one_place() -> None:
    outbox = called(1)
    queue = list(outbox.unanswered[0].run.calls)
    outbox.queue = outbox.unanswered[0].run.calls  # as between two lines of `enter`
    assert outbox.resume(0) == []
    assert outbox.queue == []
    assert outbox.unanswered[0].run.calls == queue


def test_a_look_can_be_repeated_with_the_same_message() -> None:
    outbox, look = Outbox(), Run(fetch=(1, 2), wait=(3,))
    outbox.join(look)
    outbox.enter(look, may_resend=True)
    assert outbox.resume(0) == []
    [again] = [sent.run for sent in outbox.unanswered]
    assert (again.fetch, again.wait, again.number) == ((), (), 1)
    assert (look.fetch, look.wait) == ((1, 2), (3,))


def test_a_message_drops_no_more_handles_than_it_may() -> None:
    drops = Drops(range(MAX_ITEMS + 3))
    assert drops.take() == tuple(range(MAX_ITEMS))
    assert drops.take() == tuple(range(MAX_ITEMS, MAX_ITEMS + 3))
    assert drops.take() == ()
