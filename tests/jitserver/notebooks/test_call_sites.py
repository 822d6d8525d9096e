"""Calls of jitted functions that a cell would make."""

from types import SimpleNamespace
from typing import Any

import pytest

import jitclient
from jitserver.notebooks.call_sites import call_sites


@jitclient.jit
def step(x: Any, by: Any = 1) -> Any:
    return x + by


class Model:
    @jitclient.jit
    def __call__(self, x: Any) -> Any:
        return x


NAMES: dict[str, Any] = {"step": step, "x": 2.0, "ns": SimpleNamespace(step=step), "plain": abs, "lines": ["a"]}


def sites(cell: str) -> list[tuple[Any, ...]]:
    return [(site.text, site.unknown or (site.args, dict(site.kwargs))) for site in call_sites(cell, dict(NAMES))]


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("step(x)", [("step(x)", ((2.0,), {}))]),
        ("y = ns.step(x + 1, by=plain(-3))", [("ns.step(x + 1, by=plain(-3))", ((3.0,), {"by": 3}))]),
        ("print(step(*[x]))", [("step(*[x])", ((2.0,), {}))]),
        ("for n in range(3):\n    step(x)", [("step(x)", ((2.0,), {}))]),
        ("z = x\nstep(z)", [("step(z)", "the cell sets z")]),
        ("step(nothing)", [("step(nothing)", "NameError: name 'nothing' is not defined")]),
        (
            "step(step(x))",
            [("step(x)", ((2.0,), {})), ("step(step(x))", "an argument is the result of a jitted function")],
        ),
        ("plain(x); other(x); lines[0].upper()", []),
        ("def f(x):\n    return step(x)\n[step(n) for n in range(3)]", []),
        ("", []),
    ],
)
def test_calls_at_the_top_level_are_found_with_their_arguments(cell: str, found: list[tuple[Any, ...]]) -> None:
    assert sites(cell) == found


def test_nothing_that_the_cell_would_do_is_done() -> None:
    done: list[int] = []
    names = {**NAMES, "act": done.append}
    [site] = call_sites("act(1)\nstep(x)\nact(2)", names)
    assert site.args == (2.0,)
    assert not done
    assert names.keys() == {*NAMES, "act"}


def test_a_cell_that_is_no_python_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        list(call_sites("step(", dict(NAMES)))
