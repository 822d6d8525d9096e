"""The memory budget of arrays: when it is counted, which requests exceed it, and the error."""

import pytest

from jitclient.errors import ArrayBudgetExceeded, JitserverError
from jitclient.wire.named_arrays import Holdings, KeptInfo, Made, Owned
from jitserver.daemon.arrays.budget import ArrayBudget, MemoryBudget, limits
from jitserver.programs.devices.memories import HOST, Memory
from jitserver.system import memory_limits

MIB = 1 << 20


def held(nbytes: int, kept: tuple[KeptInfo, ...] = (), sessions: tuple[Owned, ...] = ()) -> Holdings:
    return Holdings(nbytes, 100 * MIB, list(kept), list(sessions))


def kept(name: str, mib: int, arrays: int = 1) -> KeptInfo:
    return KeptInfo(name, "f32[1]", arrays, mib * MIB, 0.0, 0.0, None)


def test_without_a_budget_everything_fits() -> None:
    budget = MemoryBudget()
    budget.left -= 1 << 60
    assert budget.left > 0
    budget.left = -1
    budget.recount(1 << 60, "f()")
    assert budget.left > 1 << 60


def test_memory_freed_since_the_last_count_is_available() -> None:
    budget = MemoryBudget(100 * MIB, lambda: held(10 * MIB))
    budget.left -= 120 * MIB
    budget.recount(120 * MIB - 50 * MIB, "f()")
    assert budget.left == 100 * MIB - 10 * MIB - 70 * MIB


def test_what_may_be_freed_is_freed_before_a_request_is_refused() -> None:
    absent = [30 * MIB, 20 * MIB]
    budget = MemoryBudget(100 * MIB, lambda: held(40 * MIB + sum(absent)), lambda: bool(absent and absent.pop()))
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

    budget = MemoryBudget(100 * MIB, count)
    for _ in range(10):
        budget.take(10 * MIB, "f()")
    assert not counts
    budget.take(10 * MIB, "f()")
    assert (len(counts), budget.left) == (1, 60 * MIB)


def test_only_requests_over_the_budget_are_refused() -> None:
    budget = MemoryBudget(100 * MIB, lambda: held(95 * MIB))
    with pytest.raises(ArrayBudgetExceeded):
        budget.recount(6 * MIB, "f()")
    assert budget.left == 5 * MIB
    budget.recount(5 * MIB, "f()")
    assert budget.left == 0


def test_a_call_that_frees_more_than_it_makes_is_never_refused() -> None:
    budget = MemoryBudget(100 * MIB, lambda: held(120 * MIB))
    budget.recount(0, "f()")
    budget.recount(-5 * MIB, "f()")
    with pytest.raises(ArrayBudgetExceeded):
        budget.recount(1, "f()")


def test_the_error_lists_the_holders_the_largest_first() -> None:
    holders = held(
        90 * MIB,
        (kept("data", 30, 12), kept("empty", 0)),
        (
            Owned(7, "python train.py --lr 0.1", 3, 50 * MIB, [Made("step(f32[8])", "train.py:12", 2, 48 * MIB)]),
            Owned(8, "python other.py", 1, 10 * MIB, [Made("put by the program", "", 1, 10 * MIB)]),
        ),
    )
    budget = MemoryBudget(100 * MIB, lambda: holders)
    with pytest.raises(ArrayBudgetExceeded) as caught:
        budget.recount(20 * MIB, "step(f32[8])")
    text = str(caught.value)
    assert text.startswith("step(f32[8]): no room for 20 MiB in the daemon's memory budget of 100 MiB for arrays.")
    assert (
        "The daemon holds 90 MiB: "
        "pid 7 (python train.py --lr 0.1) 50 MiB in 3 arrays, of which step(f32[8]) at train.py:12 made 48 MiB; "
        "kept as 'data' 30 MiB in 12 arrays; " in text
    )
    assert "pid 8 (python other.py) 10 MiB in 1 array. " in text
    assert "empty" not in text
    assert "jitserver arrays rm NAME" in text
    assert "--array-memory" in text
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, JitserverError)


def test_the_error_lists_few_of_many_holders() -> None:
    budget = MemoryBudget(1, lambda: held(90 * MIB, tuple(kept(f"name{n}", 1) for n in range(90))))
    with pytest.raises(ArrayBudgetExceeded, match=r"; 82 more\. "):
        budget.recount(2, "f()")


def test_the_default_is_nine_tenths_of_each_accelerator_and_half_of_the_machine() -> None:
    half = memory_limits.memory_bytes() // 2
    gpus = [Memory(0, "on gpu:0", 80 * MIB), Memory(1, "on gpu:1", None), Memory(HOST, "in the host's memory", None)]
    assert limits(gpus) == {0: 72 * MIB, 1: half, HOST: half}
    assert limits(gpus, 10 * MIB) == {0: 10 * MIB, 1: 10 * MIB, HOST: half}
    assert limits([Memory(HOST, "", None)]) == {HOST: half}
    assert limits([Memory(HOST, "", None)], 10 * MIB) == {HOST: 10 * MIB}


def two_devices(taken: dict[int, int], free: dict[int, bool] | None = None) -> ArrayBudget:
    """A budget of 100 MiB on each of two devices, where so much is taken."""

    def budget(n: int) -> MemoryBudget:
        def free_some() -> bool:
            if not (free or {}).pop(n, False):
                return False
            taken[n] = 0
            return True

        return MemoryBudget(100 * MIB, lambda: held(taken[n]), free_some, f"on gpu:{n}")

    return ArrayBudget({n: budget(n) for n in taken})


def test_a_full_device_leaves_the_others_their_budget() -> None:
    budget = two_devices({0: 95 * MIB, 1: 0})
    budget.take({1: 90 * MIB}, "f()")
    assert (budget.default.left, budget.of(1).left) == (100 * MIB, 10 * MIB)
    with pytest.raises(ArrayBudgetExceeded) as caught:
        budget.default.recount(10 * MIB, "f()")
    assert "no room for 10 MiB in the daemon's memory budget of 100 MiB for arrays on gpu:0. " in str(caught.value)
    assert "The daemon holds 95 MiB on gpu:0: " in str(caught.value)
    with pytest.raises(ArrayBudgetExceeded, match="on gpu:0"):
        budget.take({1: MIB, 0: 101 * MIB}, "f()")
    assert budget.have_room({1: 9 * MIB})
    assert not budget.have_room({1: 9 * MIB, 0: 6 * MIB})


def test_only_arrays_in_the_memory_that_is_needed_are_freed() -> None:
    free = {0: True, 1: True}
    budget = two_devices({0: 95 * MIB, 1: 95 * MIB}, free)
    budget.of(1).left = 0
    budget.take({1: 10 * MIB}, "f()")
    assert free == {0: True}
    assert budget.free_some({0: 1})
    assert not budget.free_some({0: 1, 1: 1})


def test_the_holders_on_all_devices_that_a_call_needs_are_named() -> None:
    budget = two_devices({0: 10 * MIB, 1: 20 * MIB})
    text = "The daemon holds 20 MiB on gpu:1: nothing. The daemon holds 10 MiB on gpu:0: nothing"
    assert budget.holders({1: 1, 0: 1}) == text


def test_spare_copies_leave_three_quarters_free() -> None:
    nbytes = 20 * MIB
    budget = MemoryBudget(100 * MIB, lambda: held(nbytes))
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
