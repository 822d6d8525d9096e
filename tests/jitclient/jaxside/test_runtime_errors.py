"""Errors of JAX's runtime."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jitclient.errors import ArrayBudgetExceeded
from jitclient.jaxside.runtime_errors import as_exhausted, check_donated_once, check_not_deleted


def test_a_full_budget_is_an_error_of_jax_with_its_notes_and_ours_when_pickled() -> None:
    error = ArrayBudgetExceeded("no room")
    error.add_note("who holds it")
    made: Any = as_exhausted(error)
    assert isinstance(made, jax.errors.JaxRuntimeError)
    assert isinstance(made, ArrayBudgetExceeded)
    assert str(made) == "RESOURCE_EXHAUSTED: no room"
    assert made.__notes__ == ["who holds it"]
    assert as_exhausted(made) is made
    assert type(pickle.loads(pickle.dumps(made))) is ArrayBudgetExceeded


@pytest.mark.parametrize("donated", [(0,), (1,), (0, 1)])
def test_a_donated_array_that_is_given_twice_raises_what_jax_raises(donated: tuple[int, ...]) -> None:
    array = jax.device_put(np.ones(3, np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError) as plain:
        jax.jit(lambda x, y: (x + 1, y + 2), donate_argnums=donated)(array, array)
    with pytest.raises(jax.errors.JaxRuntimeError) as ours:
        check_donated_once((array, array), donated)
    assert str(ours.value) == str(plain.value)


def test_a_number_that_is_given_twice_is_no_donated_array() -> None:
    one = 1.5
    check_donated_once((one, one), (0,))


def test_a_deleted_argument_raises_what_jax_raises() -> None:
    f, array = jax.jit(lambda x, y: x + y, donate_argnums=1), jnp.ones(3)
    f(array, f(array, f(array, jnp.ones(3))))
    used = jnp.ones(3)
    f(array, used)
    with pytest.raises((ValueError, RuntimeError)) as plain:
        f(array, used)
    if plain.type is ValueError:
        for kind in ValueError, RuntimeError:
            with pytest.raises(kind) as ours:
                check_not_deleted((array, used))
            assert str(ours.value) == str(plain.value)
    else:
        assert str(plain.value) == "Array has been deleted with shape=float32[3]."  # as other uses of it
        check_not_deleted((array, used))
    check_not_deleted((array, 1.0, np.ones(3)))
