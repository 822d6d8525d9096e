"""Forms of index, as the conformance run compares them, on arrays whose axes are short.

The conformance run has the product of forms, uses and shapes; a test has all pairs of them, and all slices only of an
axis of two.
"""

import importlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient

pytestmark = pytest.mark.usefixtures("daemon")

TOP = Path(__file__).parents[3]
SHAPES_OF_ALL_SLICES = ((2,),)
READ, SET = "array[{}]", "array.at[{}].set(3)"


@pytest.fixture
def indexing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(TOP))
    yield importlib.import_module("benchmarks.indexing")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "use"), [((2, 1), READ), ((1,), READ), ((0,), READ), ((1,), SET)])
def test_short_axes(shape: tuple[int, ...], use: str, indexing: Any) -> None:
    found = list(indexing.differences(shape, indexing.expressions([use], indexing.FEW_SLICES)))
    assert len(found) > 100
    assert not [difference for difference in found if difference]


def pairs(indexing: Any) -> Iterator[tuple[tuple[int, ...], list[str]]]:
    """Yield for each shape all forms of index, each in one use: the next shape that has a form has its next use."""
    turns: dict[str, Iterator[int]] = {}
    for shape in indexing.SHAPES:
        slices = indexing.SLICES if shape in SHAPES_OF_ALL_SLICES else indexing.FEW_SLICES
        forms = list(indexing.expressions(["{}"], slices))
        uses = [next(turns.setdefault(form, itertools.count(len(turns)))) % len(indexing.USES) for form in forms]
        yield shape, [indexing.USES[use].format(form) for use, form in zip(uses, forms, strict=True)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_form_on_every_shape_and_in_every_use(indexing: Any) -> None:
    found = list(itertools.chain(*(indexing.differences(shape, written) for shape, written in pairs(indexing))))
    assert len(found) > 1500
    assert not [difference for difference in found if difference]


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
