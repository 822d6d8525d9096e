"""Numbers and texts that a trace puts into cells of closures, told from all else that it changes."""

from collections.abc import Callable
from typing import Any

import pytest

from jitclient.calls.rebinds import contents, rebind, rebinds_since
from jitclient.capture.dump import capture


def function(held: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    text = "text"

    def put(new: Any) -> None:
        nonlocal held
        held = new

    return lambda: (held, text), put


@pytest.mark.parametrize("new", [3.0, 4, True, "three", b"three", 3j, None])
def test_numbers_and_texts_are_put_into_the_same_cells_of_an_equal_function(new: Any) -> None:
    (fn, put), (equal, _) = function(3), function(3)
    captured, there = capture(fn), capture(equal)
    assert captured.key == there.key
    before = contents(captured)
    put(new)
    rebinds = rebinds_since(before, captured, lambda: capture(fn).key == captured.key)
    rebind(there, rebinds)
    assert (fn(), equal()) == ((new, "text"), (new, "text"))
    assert type(equal()[0]) is type(new)
    assert capture(equal).key == capture(fn).key


@pytest.mark.parametrize(("held", "new"), [(3, [3]), ([3], 3), (3, object)])
def test_other_objects_are_for_each_trace(held: Any, new: Any) -> None:
    fn, put = function(held)
    captured = capture(fn)
    before = contents(captured)
    put(new)
    assert rebinds_since(before, captured, lambda: True) == ()


def test_a_trace_that_changed_more_leaves_the_cells_as_it_set_them() -> None:
    fn, put = function(3)
    captured = capture(fn)
    before, seen = contents(captured), []
    put(4)
    assert rebinds_since(before, captured, lambda: bool(seen.append(fn()[0]))) == ()
    assert (seen, fn()) == ([3], (4, "text"))
