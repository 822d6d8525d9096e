"""Every form of index, as the conformance run compares them, on arrays whose axes are short."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

TOP = Path(__file__).parents[3]
READ, SET = "array[{}]", "array.at[{}].set(3)"
QUICK = [
    ((2, 1), READ),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in [((1,), READ), ((0,), READ), ((1,), SET)]),
]


@pytest.fixture
def indexing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(TOP))
    yield importlib.import_module("benchmarks.indexing")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(("shape", "use"), QUICK)
def test_short_axes(shape: tuple[int, ...], use: str, indexing: Any) -> None:
    found = list(indexing.differences(shape, indexing.expressions([use], indexing.FEW_SLICES)))
    assert len(found) > 100
    assert not [difference for difference in found if difference]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_of_them(indexing: Any) -> None:
    assert not [difference for difference in indexing.all_differences() if difference]


def test_a_difference_is_seen(indexing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "outcome", lambda expression, names: type(names["array"]).__name__)
    (found,) = indexing.differences((1,), [READ.format("0")])
    assert found.call == "array[0] of shape (1,)"
    assert found.jax != found.jitserver


def test_an_integer_drops_an_axis_of_length_one() -> None:
    array = jitclient.device_put(np.ones((1, 1), np.float32))
    assert array[0].shape == array[:, -1].shape == (1,)
    assert float(array[0][0]) == 1
    assert array[:] is array[0:1] is array
