"""The one warning about a large array of numpy's that a program is sent again and again."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.calls import resent

pytestmark = pytest.mark.usefixtures("daemon")

LARGE = 1 << 18  # float32s: 1 MiB


@pytest.fixture(autouse=True)
def _first_time() -> Iterator[None]:
    resent._warned.clear()
    yield
    resent._warned.clear()


def warned(calls: int, call: Callable[[int], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for n in range(calls):
            call(n)
    return [str(one.message) for one in found]


def step(params: Any, x: Any, *rest: Any, **named: Any) -> Any:
    return params["w"][0] + x[0]


def test_it_names_the_argument_and_comes_once() -> None:
    fn, params, x = jitclient.jit(step), {"w": np.ones(LARGE, np.float32)}, np.ones(3, np.float32)
    [text] = warned(9, lambda n: fn(params, x))
    assert text.startswith("step was sent the same params['w'], 1 MiB, 5 times")
    assert "jitclient.device_put" in text
    assert warned(9, lambda n: fn({"w": np.concatenate([params["w"], params["w"]])}, x)) == []  # another program
    params = {"w": jitclient.device_put(params["w"])}
    assert warned(9, lambda n: fn(params, x)) == []


def test_plans_look_too() -> None:
    fn, x, y = jitclient.jit(lambda x, y: x[0] + y[0]), jitclient.device_put(np.ones(3, np.float32)), np.ones(LARGE)
    [text] = warned(9, lambda n: fn(x, y))
    assert text.startswith("<lambda> was sent the same y, 2 MiB, 5 times")


def test_positions_are_counted_without_the_static_arguments() -> None:
    fn = jitclient.jit(lambda n, x, *, y: y[0] + x[0] * n, static_argnums=0)
    x, y = np.ones(3, np.float32), np.ones(LARGE, np.float32)
    [text] = warned(9, lambda n: fn(2, x, y=y))
    assert "the same y, 1 MiB" in text


@pytest.mark.parametrize(
    "case", ["small", "changing", "new each time", "of several", "donated", "of jax", "on the daemon", "seldom"]
)
def test_of_what_there_is_no_warning(case: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    batch = np.zeros(LARGE, np.float32)
    ours, there = jnp.zeros(LARGE), jitclient.device_put(batch)
    several = [np.full(LARGE, k, np.float32) for k in range(3)]

    def changing(n: int) -> Any:
        batch[:] = n
        return batch

    give: dict[str, Callable[[int], Any]] = {
        "small": lambda n: batch[:-1],
        "changing": changing,
        "new each time": lambda n: np.full(LARGE, n, np.float32),
        "of several": lambda n: several[n % 3],
        "donated": lambda n: batch,
        "of jax": lambda n: ours,
        "on the daemon": lambda n: there,
        "seldom": lambda n: batch,
    }
    fn = jitclient.jit(lambda x: x * 2, donate_argnums=0 if case == "donated" else ())
    assert warned(4 if case == "seldom" else 9, lambda n: fn(give[case](n))) == []


def test_views_of_the_same_memory_are_the_same() -> None:
    fn, data = jitclient.jit(lambda x: x[0]), np.ones(2 * LARGE, np.float64)
    [text] = warned(9, lambda n: fn(data[LARGE:]))
    assert "the same x, 2 MiB" in text
