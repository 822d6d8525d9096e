"""Pickles between driver and worker, both played by this process."""

import enum
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jitclient.errors import RemoteError
from jitclient.pools import outcomes, pickling

WORKER = """
import json, pickle, sys
sys.modules["__main__"] = type(sys)("__main__")
from jitclient.pools import outcomes, pickling
function, data = pickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(pickle.dumps(outcomes.returned(pickling.loads(function)(pickling.loads(data)), "f")))
"""


def in_worker(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns the result of a function that another process runs."""
    sent = pickling.dumps((pickling.dumps(function), pickling.dumps(value)))
    done = subprocess.run([sys.executable, "-c", WORKER], input=sent, stdout=subprocess.PIPE, check=True)
    found, error = outcomes.result_of(pickling.loads(done.stdout))
    assert error is None, error
    return found


def test_a_class_that_a_worker_has_from_the_driver_comes_back_as_itself() -> None:
    class Setting:
        def __init__(self, rate: float) -> None:
            self.rate = rate

        def doubled(self) -> "Setting":
            return Setting(self.rate * 2)

    class Color(enum.Enum):
        RED = 1

    method = Setting.doubled
    found = in_worker(lambda pair: (pair[0].doubled(), pair[1], Setting), (Setting(2.0), Color.RED))
    assert type(found[0]) is Setting is found[2]
    assert found[0].rate == 4.0
    assert found[1] is Color.RED
    # The class was not changed by the way back.
    assert Setting.doubled is method


def test_a_class_that_a_worker_makes_comes_by_value() -> None:
    def make(name: str) -> Any:
        made = type(name, (), {"value": 3})
        return made(), made()

    one, other = in_worker(make, "Made")
    assert type(one) is type(other)
    assert (type(one).__name__, one.value) == ("Made", 3)


def test_a_traceback_names_the_file_of_a_function_that_travels_by_value() -> None:
    def fail() -> None:
        raise ValueError

    copy = pickling.loads(pickling.dumps(fail))
    assert copy.__code__.co_filename == __file__
    assert copy.__code__ == fail.__code__


@pytest.mark.parametrize("value", [1, 2.5, "a", b"a", None, True, (1, ("a", None)), 1j])
def test_values_that_cannot_change_travel_as_they_are(value: Any) -> None:
    assert pickling.is_plain(value)
    assert outcomes.returned(value, "f") == (outcomes.PLAIN, value)


@pytest.mark.parametrize("value", [[1], (1, [2]), {"a": 1}, {1}, True.__class__, type("int", (int,), {})(3)])
def test_values_that_can_change_are_pickled(value: Any) -> None:
    assert not pickling.is_plain(value)


def test_a_value_that_cannot_be_pickled_is_an_error_with_the_name_of_the_call() -> None:
    _, error = outcomes.result_of(outcomes.returned([threading.Lock()], "train"))
    assert isinstance(error, TypeError)
    assert error.__notes__ == ["train returned this value, which cannot be sent to the driver: list"]


def test_an_exception_that_cannot_be_made_again_is_a_remote_error() -> None:
    class Odd(Exception):
        def __init__(self, one: int, other: int) -> None:
            super().__init__(one + other)

    _, error = outcomes.result_of(outcomes.raised(Odd(1, 2), "worker"))
    assert type(error) is RemoteError
    assert str(error).endswith("Odd: 3")
    assert "on worker:" in str(error.__cause__)


def test_the_notes_and_attributes_of_an_exception_arrive() -> None:
    error = ValueError("x")
    error.add_note("a note")
    error.step = 3  # type: ignore[attr-defined]
    _, found = outcomes.result_of(outcomes.raised(error, "worker"))
    assert isinstance(found, ValueError)
    assert (found.__notes__, found.step) == (["a note"], 3)  # type: ignore[attr-defined]
