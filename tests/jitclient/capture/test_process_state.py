"""The state of a process that is carried to the tracing process."""

import contextlib
import decimal
import warnings

import numpy as np
import pytest

from jitclient.capture.ambient import process_state
from jitclient.errors import CaptureError


@pytest.fixture(autouse=True)
def no_filters():
    with warnings.catch_warnings():
        warnings.resetwarnings()  # pytest's make errors of warnings
        yield


def entered(state):
    stack = contextlib.ExitStack()
    for name, value in state:
        stack.enter_context(process_state.ENTER[name](value))
    return stack


def test_what_nobody_set_is_left_out():
    assert process_state.current() == ()


def test_what_was_set_is_the_same_elsewhere():
    with np.errstate(over="raise"), np.printoptions(precision=3, legacy="1.21"), decimal.localcontext() as context:
        context.prec, context.rounding = 6, decimal.ROUND_UP
        context.traps[decimal.Inexact] = True
        state = process_state.current()
    assert [name for name, _ in state] == ["numpy_errors", "numpy_printing", "decimal_context"]
    assert process_state.current() == ()
    with entered(state):
        assert process_state.current() == state
        assert np.geterr()["over"] == "raise"
        assert str(np.float64(1) / np.array([3.0])) == "[0.333]"
        with pytest.raises(decimal.Inexact):
            decimal.Decimal(1) / 3
    assert process_state.current() == ()


@pytest.mark.parametrize(
    "setting", [lambda: np.printoptions(formatter={"all": str}), lambda: np.errstate(all="call", call=print)]
)
def test_a_function_cannot_be_carried(setting):
    with setting(), pytest.raises(CaptureError, match="is a function, which cannot be sent"):
        process_state.current()


def test_filters_of_warnings_count_if_some_make_errors():
    warnings.simplefilter("ignore", UserWarning)
    assert process_state.current() == ()
    warnings.filterwarnings("error", "old", module="package")
    [(name, filters)] = process_state.current()
    assert name == "warnings"
    assert [action for action, *_ in filters] == ["error", "ignore"]
    assert process_state.current() == ((name, filters),)
    warnings.filterwarnings("error", "new", module="package")
    assert process_state.current() != ((name, filters),)
