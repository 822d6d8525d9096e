"""Small calls made again and again: each has its own arguments, and its results stay what they are."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jitclient

CALLS = 150  # from the 64th on, the daemon has arguments where those of the call before were


def x(n: int) -> Any:
    return np.full((2, 3), n, np.float32)


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], dict[str, Any]]] = {
    "the argument": (lambda x: x, lambda n: (x(n),), {}),
    "parts of it": (lambda x: (x[0], x.reshape(6), jnp.where(x > 0, x, x)), lambda n: (x(n),), {}),
    "numbers": (lambda a, b, c: (a * b, a, c), lambda n: (n, n / 2, n % 2 == 0), {}),
    "a tree": (lambda t: {k: v + 1 for k, v in t.items()}, lambda n: ({"a": x(n), "b": x(n).astype(np.int8)},), {}),
    "no dtype of numpy's": (lambda x: x * 2, lambda n: (x(n).astype(jnp.bfloat16),), {}),
    "empty": (lambda x, y: (x, y + 1), lambda n: (np.zeros((0, 2), np.float32), x(n)), {}),
    "donated": (lambda x, y: x + y, lambda n: (x(n), x(1)), {"donate_argnums": 0}),
    "called back": (
        lambda x: jax.pure_callback(np.negative, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        lambda n: (x(n),),
        {},
    ),
}


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.callbacks if case == "called back" else ()) for case in CASES]
)
def test_results_stay_what_they_are(case: str) -> None:
    function, arguments, options = CASES[case]
    ours, theirs = jitclient.jit(function, **options), jax.jit(function)
    made = [ours(*arguments(n)) for n in range(CALLS)]
    for n, results in enumerate(made):
        for mine, right in zip(jax.tree.leaves(results), jax.tree.leaves(theirs(*arguments(n))), strict=True):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(right))
            assert (mine.dtype, mine.weak_type) == (right.dtype, right.weak_type)


@pytest.mark.usefixtures("daemon")
def test_threads_have_their_own_arguments() -> None:
    scale = jitclient.jit(lambda x, y: (x * y, x))
    wrong: list[int] = []

    def call(first: int) -> None:
        for n in range(first, first + CALLS):
            product, same = map(np.asarray, scale(x(n), x(2)))
            if (product != 2 * n).any() or (same != n).any():
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(1000 * n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
