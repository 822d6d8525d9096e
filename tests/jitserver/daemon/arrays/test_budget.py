"""The memory budget of arrays: when it is counted, which requests exceed it, and the error."""

import pytest

from jitclient.errors import ArrayBudgetExceeded, JitserverError
from jitclient.wire.messages import DeviceInfo
from jitclient.wire.named_arrays import Holdings, KeptInfo, Owned
from jitserver.daemon.arrays.budget import ArrayBudget, array_share
from jitserver.system import memory_limits

MIB = 1 << 20


def held(nbytes: int, kept: tuple[KeptInfo, ...] = (), sessions: tuple[Owned, ...] = ()) -> Holdings:
    return Holdings(nbytes, 100 * MIB, list(kept), list(sessions))


def kept(name: str, mib: int, arrays: int = 1) -> KeptInfo:
    return KeptInfo(name, "f32[1]", arrays, mib * MIB, 0.0, 0.0, None)


def test_without_a_budget_everything_fits() -> None:
    budget = ArrayBudget()
    budget.left -= 1 << 60
    assert budget.left > 0
    budget.left = -1
    budget.recount(1 << 60, "f()")
    assert budget.left > 1 << 60


def test_memory_freed_since_the_last_count_is_available() -> None:
    budget = ArrayBudget(100 * MIB, lambda: held(10 * MIB))
    budget.left -= 120 * MIB
    budget.recount(120 * MIB - 50 * MIB, "f()")
    assert budget.left == 100 * MIB - 10 * MIB - 70 * MIB


def test_what_may_be_freed_is_freed_before_a_request_is_refused() -> None:
    absent = [30 * MIB, 20 * MIB]
    budget = ArrayBudget(100 * MIB, lambda: held(40 * MIB + sum(absent)), lambda: bool(absent and absent.pop()))
    budget.left = 0
    with pytest.raises(ArrayBudgetExceeded):
        budget.take(20 * MIB, "f()", is_spare=True)
    assert len(absent) == 2
    budget.recount(25 * MIB, "f()")
    assert (absent, budget.left) == ([30 * MIB], 5 * MIB)
    with pytest.raises(ArrayBudgetExceeded):
        budget.recount(70 * MIB, "f()")


def test_arrays_are_not_counted_while_the_budget_lasts() -> None:
    counts = []

    def count() -> Holdings:
        counts.append(1)
        return held(30 * MIB)

    budget = ArrayBudget(100 * MIB, count)
    for _ in range(10):
        budget.take(10 * MIB, "f()")
    assert not counts
    budget.take(10 * MIB, "f()")
    assert (len(counts), budget.left) == (1, 60 * MIB)


def test_only_requests_over_the_budget_are_refused() -> None:
    budget = ArrayBudget(100 * MIB, lambda: held(95 * MIB))
    with pytest.raises(ArrayBudgetExceeded):
        budget.recount(6 * MIB, "f()")
    assert budget.left == 5 * MIB
    budget.recount(5 * MIB, "f()")
    assert budget.left == 0


def test_a_call_that_frees_more_than_it_makes_is_never_refused() -> None:
    budget = ArrayBudget(100 * MIB, lambda: held(120 * MIB))
    budget.recount(0, "f()")
    budget.recount(-5 * MIB, "f()")
    with pytest.raises(ArrayBudgetExceeded):
        budget.recount(1, "f()")


def test_the_error_lists_the_holders_the_largest_first() -> None:
    holders = held(
        90 * MIB,
        (kept("data", 30, 12), kept("empty", 0)),
        (Owned(7, "python train.py --lr 0.1", 3, 50 * MIB), Owned(8, "python other.py", 1, 10 * MIB)),
    )
    budget = ArrayBudget(100 * MIB, lambda: holders)
    with pytest.raises(ArrayBudgetExceeded) as caught:
        budget.recount(20 * MIB, "step(f32[8])")
    text = str(caught.value)
    assert text.startswith("step(f32[8]): no room for 20 MiB in the daemon's memory budget of 100 MiB for arrays.")
    assert (
        "The daemon holds 90 MiB: "
        "pid 7 (python train.py --lr 0.1) 50 MiB in 3 arrays; kept as 'data' 30 MiB in 12 arrays; " in text
    )
    assert "pid 8 (python other.py) 10 MiB in 1 array. " in text
    assert "empty" not in text
    assert "jitserver arrays rm NAME" in text
    assert "--array-memory" in text
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, JitserverError)


def test_the_error_lists_few_of_many_holders() -> None:
    budget = ArrayBudget(1, lambda: held(90 * MIB, tuple(kept(f"name{n}", 1) for n in range(90))))
    with pytest.raises(ArrayBudgetExceeded, match=r"; 82 more\. "):
        budget.recount(2, "f()")


def test_the_default_is_nine_tenths_of_accelerators_or_half_of_the_machine() -> None:
    gpus = [DeviceInfo("H100", "gpu", 80 * MIB), DeviceInfo("H100", "gpu", 80 * MIB)]
    assert array_share(gpus) == 144 * MIB
    assert array_share([DeviceInfo("cpu", "cpu", None)]) == memory_limits.memory_bytes() // 2


def test_spare_copies_leave_three_quarters_free() -> None:
    nbytes = 20 * MIB
    budget = ArrayBudget(100 * MIB, lambda: held(nbytes))
    budget.take(10 * MIB, "f()", is_spare=True)
    assert budget.left == 90 * MIB
    budget.take(15 * MIB, "f()", is_spare=True)
    with pytest.raises(ArrayBudgetExceeded):
        budget.take(6 * MIB, "f()", is_spare=True)
    assert budget.left == 80 * MIB
    budget.take(5 * MIB, "f()", is_spare=True)
    budget.take(75 * MIB, "f()")
    assert budget.left == 0
    nbytes = 0
    budget.take(25 * MIB, "f()", is_spare=True)  # counted again
    assert budget.left == 75 * MIB
